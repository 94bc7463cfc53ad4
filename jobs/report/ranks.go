package report

import (
	"cmp"
	"slices"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

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

// computeRankTimes returns the ranks of the intervals that have the same number of ranks as the last
// interval.
func computeRankTimes(train []metrics.Record, network *rundir.Network) []rankTimes {
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
	for r := range ranks {
		ranks[r].Rank, ranks[r].Host = r, hostOfRank(network, r, n)
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

// hostOfRank returns the host of a rank. The launcher assigns ranks node by node, with the same
// number on each. If the number of ranks is not a multiple of the number of hosts, hostOfRank
// returns an empty string.
func hostOfRank(network *rundir.Network, rank, ranks int) string {
	if network == nil || len(network.Hosts) == 0 || ranks%len(network.Hosts) != 0 {
		return ""
	}
	return network.Hosts[rank/(ranks/len(network.Hosts))].Host
}

// slowestRanks limits the ranks to the given maximum. If there are more, it returns the ranks with the
// longest computation time, ordered by rank.
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
