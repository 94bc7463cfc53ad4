package report

import (
	"cmp"
	"slices"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

// stragglerMillis applies the rule for single intervals to the medians of all of them.
var stragglerMillis = metrics.StragglerTime.Seconds() * 1e3

// rank is how long a rank computes in a step, in ms, over all intervals in which it
// took part.
type rank struct {
	Rank             int
	Host             string
	Median, Min, Max float64
	Low, High        float64 // the tenth and the ninetieth of a hundred
	Slowest          int     // intervals in which it was the slowest
	Ratio            float64 // median over that of the median rank
	Straggler        bool
}

// ranksOf sums up the ranks of those intervals that had as many ranks as the last one.
func ranksOf(train []metrics.Record, network *rundir.Network) []rank {
	n := 0
	for i := range train {
		if k := len(train[i].ComputeMillis); k > 0 {
			n = k
		}
	}
	times := make([][]float64, n)
	ranks := make([]rank, n)
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
	for r := range ranks {
		ranks[r].Rank, ranks[r].Host = r, hostOf(network, r, n)
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

// median is that of values in order: of an even number the lower of the two in the
// middle, as the trainer takes it.
func median(sorted []float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)-1)/2]
}

// hostOf is where a rank ran: the launcher numbers ranks by nodes, as many on each. Empty
// where that cannot be.
func hostOf(network *rundir.Network, rank, ranks int) string {
	if network == nil || len(network.Hosts) == 0 || ranks%len(network.Hosts) != 0 {
		return ""
	}
	return network.Hosts[rank/(ranks/len(network.Hosts))].Host
}

// shown are the ranks that a page has room for: all, or those that compute longest, in
// order.
func shown(ranks []rank, most int) []rank {
	if len(ranks) <= most {
		return ranks
	}
	slowest := slices.Clone(ranks)
	slices.SortStableFunc(slowest, func(a, b rank) int { return cmp.Compare(b.Median, a.Median) })
	slowest = slowest[:most]
	slices.SortFunc(slowest, func(a, b rank) int { return cmp.Compare(a.Rank, b.Rank) })
	return slowest
}
