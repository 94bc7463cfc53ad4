package runs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/slurm"
)

// ParseTrials parses a list of trial indices from 0 to n-1, such as "0-3,7". The result is
// sorted.
func ParseTrials(list string, n int) ([]int, error) {
	var all []int
	for part := range strings.SplitSeq(list, ",") {
		low, high, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			high = low
		}
		first, err := strconv.ParseUint(low, 10, 31)
		last, err2 := strconv.ParseUint(high, 10, 31)
		if err != nil || err2 != nil || first > last {
			return nil, fmt.Errorf("%q is not a list of trials such as 0-3,7", list)
		}
		if int(last) >= n {
			return nil, fmt.Errorf("no trial %d: the sweep has trials 0 to %d", last, n-1)
		}
		for i := first; i <= last; i++ {
			all = append(all, int(i))
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// CountStates formats the number of jobs in each state, such as "2 running, 1 pending".
func CountStates(states []slurm.JobState) string {
	counts := map[slurm.State]int{}
	var order []slurm.State
	for _, s := range states {
		if counts[s.State]++; counts[s.State] == 1 {
			order = append(order, s.State)
		}
	}
	slices.Sort(order)
	var parts []string
	for _, s := range order {
		parts = append(parts, fmt.Sprintf("%d %s", counts[s], strings.ToLower(string(s))))
	}
	return strings.Join(parts, ", ")
}
