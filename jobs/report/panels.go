package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

// addCharts adds the charts of the training metrics.
func (p *page) addCharts() {
	f := &p.Run.Metrics
	restarts := p.resumeSteps()
	add := func(c *chart) {
		if c != nil {
			p.Charts = append(p.Charts, c)
		}
	}
	add(newChart("loss", "Loss", "", false, restarts,
		lineData{"training", "one", series(f.Train, lossOf)}, lineData{"held out", "two", series(f.Eval, lossOf)}))
	add(newChart("accuracy", "Accuracy on held-out data", "", false, restarts, lineData{"accuracy", "two", series(f.Eval, accuracyOf)}))
	add(newChart("rate", "Throughput of all ranks", rateUnit(f), true, restarts, lineData{rateUnit(f), "one", series(f.Train, rateOf)}))

	var step, wait []point
	for i := range f.Train {
		if w, s, ok := exposedTime(&f.Train[i]); ok {
			x := float64(f.Train[i].Step)
			step, wait = append(step, point{x, s}), append(wait, point{x, w})
		}
	}
	add(newChart("step", "Step time and wait time of rank 0", "ms", true, restarts,
		lineData{"whole step", "one", step}, lineData{"waiting for gradients", "two", wait}))
	p.Communication = describeCommunication(f, step, wait)
	if len(step)+len(series(f.Train, rateOf)) == 0 { // a program that reports no other speed
		add(newChart("step", "Step time", "ms", true, restarts, lineData{"step time", "one", series(f.Train, stepTimeOf)}))
	}
}

// describeCommunication describes whether communication is hidden, based on medians over the log
// intervals. It returns an empty string if no record contains these values.
func describeCommunication(f *Metrics, step, wait []point) string {
	var shares, all, hidden []float64
	for i := range step {
		shares = append(shares, wait[i].y/step[i].y)
	}
	for i := range f.Train {
		if m := &f.Train[i]; m.CommMillis != nil && m.CommHidden != nil && finite(float64(*m.CommMillis)) && finite(float64(*m.CommHidden)) {
			all, hidden = append(all, float64(*m.CommMillis)), append(hidden, float64(*m.CommHidden))
		}
	}
	if len(all) == 0 {
		return ""
	}
	slices.Sort(shares)
	slices.Sort(all)
	slices.Sort(hidden)
	text := fmt.Sprintf("Communication takes %s ms per step on rank 0, including the wait for slower ranks. %.0f%% of it overlaps the backward pass (median of %s).",
		formatValue(median(all)), 100*median(hidden), format.Count(len(all), "interval"))
	if len(shares) == 0 {
		return text
	}
	share := median(shares)
	text += fmt.Sprintf(" The remainder is %.0f%% of a step", 100*share)
	switch {
	case share < 0.1:
		return text + ": communication is hidden."
	case share < 0.3:
		return text + ": communication slows training down. Use larger batches, train.accumulate, or train.reduce = \"bf16\"."
	}
	return text + ": communication, or the wait for a slow rank, slows training down much. Check the ranks and the network below; use larger batches, train.accumulate, or train.reduce = \"bf16\"."
}

// resumeSteps returns the last recorded step before each later attempt, in ascending order. The
// attempt resumed at this step or before.
func (p *page) resumeSteps() []int {
	var steps []int
	train := p.Run.Metrics.Train
	for i, a := range p.Run.Status.Attempts {
		if i == 0 {
			continue
		}
		// The records are in the order of their times. Files of another user can have thousands of
		// attempts and hundreds of thousands of records.
		n, _ := slices.BinarySearchFunc(train, a.Began, func(m metrics.Record, began time.Time) int { return m.Time.Compare(began) })
		if n > 0 && train[n-1].Step > 0 {
			steps = append(steps, train[n-1].Step)
		}
	}
	slices.Sort(steps)
	return slices.Compact(steps)
}

// addRanks adds the chart and the table of the computation times, and names the stragglers.
func (p *page) addRanks() {
	tasksPerNode := ""
	if a := p.Run.Status.Attempts; len(a) > 0 {
		tasksPerNode = a[len(a)-1].TasksPerNode
	}
	all := computeRankTimes(p.Run.Metrics.Train, p.Run.Network, tasksPerNode)
	p.Bars = newRankChart(all)
	p.Ranks = slowestRanks(all, maxTable)
	p.RanksCut = len(all) - len(p.Ranks)
	if len(all) == 0 {
		return
	}
	var slow []string
	for _, r := range all {
		if r.Straggler && len(slow) < 8 {
			slow = append(slow, fmt.Sprintf("rank %d%s computes %.1fx as long as the median rank", r.Rank, onHost(r.Host), r.Ratio))
		}
	}
	if len(slow) == 0 {
		p.RanksSay = fmt.Sprintf("No stragglers: no rank computes at least %.1fx as long as the median rank and %g ms longer per step.", metrics.StragglerRatio, stragglerMillis)
		return
	}
	p.RanksSay = sentence("Stragglers: "+strings.Join(slow, "; ")) + " All ranks wait for the slowest in every step."
}

func onHost(host string) string {
	if host == "" {
		return ""
	}
	return " on " + host
}

// stragglerMillis is the minimum delay of a straggler, in ms. The trainer applies this rule to
// single intervals, and the report applies it to the medians over all intervals.
var stragglerMillis = metrics.StragglerTime.Seconds() * 1e3

// rankTimes holds the computation time per step of one rank, in ms, over all intervals in which it
// took part.
type rankTimes struct {
	Rank             int
	Host             string
	Median, Min, Max float64
	Low, High        float64 // 10th and 90th percentile
	Slowest          int     // number of intervals in which the rank was the slowest
	Ratio            float64 // median divided by the median over all ranks
	Straggler        bool
}

// computeRankTimes returns the ranks of the intervals that have the same number of ranks as the
// last interval.
func computeRankTimes(train []metrics.Record, network *rundir.Network, tasksPerNode string) []rankTimes {
	n := 0
	for i := range train {
		if k := len(train[i].ComputeMillis); k > 0 {
			n = k
		}
	}
	times := make([][]float64, n)
	ranks := make([]rankTimes, n)
	for i := range train {
		m := &train[i]
		if len(m.ComputeMillis) != n {
			continue
		}
		for r, t := range m.ComputeMillis {
			if finite(float64(t)) && t >= 0 {
				times[r] = append(times[r], float64(t))
			}
		}
		if m.SlowestRank != nil && *m.SlowestRank >= 0 && *m.SlowestRank < n {
			ranks[*m.SlowestRank].Slowest++
		}
	}
	var medians []float64
	hosts := hostsOfRanks(network, tasksPerNode, n)
	for r := range ranks {
		ranks[r].Rank, ranks[r].Host = r, hosts[r]
		if slices.Sort(times[r]); len(times[r]) > 0 {
			ranks[r].Median, ranks[r].Min, ranks[r].Max = median(times[r]), times[r][0], times[r][len(times[r])-1]
			ranks[r].Low, ranks[r].High = times[r][len(times[r])/10], times[r][(len(times[r])-1)*9/10]
		}
		medians = append(medians, ranks[r].Median)
	}
	slices.Sort(medians)
	for r := range ranks {
		if m := median(medians); m > 0 {
			ranks[r].Ratio = ranks[r].Median / m
			ranks[r].Straggler = ranks[r].Ratio >= metrics.StragglerRatio && ranks[r].Median-m >= stragglerMillis
		}
	}
	return ranks
}

// median returns the median of sorted values. For an even number of values it returns the
// lower middle value, as the trainer does. It returns 0 if there are no values.
func median(sorted []float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)-1)/2]
}

// hostsOfRanks returns the host of each rank. The launcher assigns ranks node by node. An empty
// tasksPerNode means that all hosts have the same number of ranks. The names are empty if the
// numbers of ranks and hosts do not match.
func hostsOfRanks(network *rundir.Network, tasksPerNode string, ranks int) []string {
	hosts := make([]string, ranks)
	if network == nil || len(network.Hosts) == 0 {
		return hosts
	}
	n := len(network.Hosts)
	tasks := slices.Repeat([]int{ranks / n}, n)
	if tasksPerNode != "" {
		tasks, _ = slurm.ParseTasksPerNode(tasksPerNode)
	}
	sum := 0
	for _, k := range tasks {
		sum += min(k, ranks+1)
	}
	if len(tasks) != n || sum != ranks {
		return hosts
	}
	rank := 0
	for i, k := range tasks {
		for range k {
			hosts[rank] = network.Hosts[i].Host
			rank++
		}
	}
	return hosts
}

// slowestRanks limits the ranks to the given maximum. If there are more, it returns the ranks
// with the longest computation time, ordered by rank.
func slowestRanks(ranks []rankTimes, limit int) []rankTimes {
	if len(ranks) <= limit {
		return ranks
	}
	slowest := slices.Clone(ranks)
	slices.SortStableFunc(slowest, func(a, b rankTimes) int { return cmp.Compare(b.Median, a.Median) })
	slowest = slowest[:limit]
	slices.SortFunc(slowest, func(a, b rankTimes) int { return cmp.Compare(a.Rank, b.Rank) })
	return slowest
}
