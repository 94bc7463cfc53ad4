package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/format"
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
	add(newChart("step", "A step of rank 0, and its wait for others", "ms", true, restarts,
		lineData{"whole step", "one", step}, lineData{"waiting for gradients", "two", wait}))
	p.Communication = describeCommunication(f, step, wait)
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
	text := fmt.Sprintf("Of the %s ms that a step's communication takes on rank 0, waiting for slower ranks included, %.0f%% passed during the backward pass (median of %s).",
		formatValue(median(all)), 100*median(hidden), format.Count(len(all), "interval"))
	if len(shares) == 0 {
		return text
	}
	share := median(shares)
	text += fmt.Sprintf(" What is left is %.0f%% of a step", 100*share)
	switch {
	case share < 0.1:
		return text + ": communication is hidden."
	case share < 0.3:
		return text + ": communication costs something; larger batches, train.accumulate or train.reduce = \"bf16\" make it less."
	}
	return text + ": communication, or waiting for a slow rank, costs much. Look at the ranks and the network below; larger batches, train.accumulate or train.reduce = \"bf16\" make it less."
}

// resumeSteps returns the steps at which later attempts resumed.
func (p *page) resumeSteps() []int {
	var steps []int
	train := p.Run.Metrics.Train
	for i, a := range p.Run.Status.Attempts {
		if i == 0 {
			continue
		}
		before := 0
		for _, m := range train {
			if m.Time.Before(a.Began) {
				before = m.Step
			}
		}
		if before > 0 && !slices.Contains(steps, before) {
			steps = append(steps, before)
		}
	}
	return steps
}

// addRanks adds the chart and the table of the computation times, and names the stragglers.
func (p *page) addRanks() {
	all := computeRankTimes(p.Run.Metrics.Train, p.Run.Network)
	p.Bars = newRankChart(all)
	p.Ranks = slowestRanks(all, maxTable)
	p.RanksCut = len(all) - len(p.Ranks)
	if len(all) == 0 {
		return
	}
	var slow []string
	for _, r := range all {
		if r.Straggler && len(slow) < 8 {
			slow = append(slow, fmt.Sprintf("rank %d%s computes %.1f times as long as the median rank", r.Rank, onHost(r.Host), r.Ratio))
		}
	}
	if len(slow) == 0 {
		p.RanksSay = fmt.Sprintf("No rank straggles: none computes %.1f times as long as the median rank, and %g ms longer in a step.", metrics.StragglerRatio, stragglerMillis)
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
