package slurm

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseLayout reads the tasks per node as Slurm writes them in
// SLURM_STEP_TASKS_PER_NODE: "3,2(x2)" is three tasks on node 0 and two each on
// nodes 1 and 2. Only equal neighbours are folded, so the order is the nodes'.
func ParseLayout(s string) ([]int, error) {
	var tasks []int
	for part := range strings.SplitSeq(s, ",") {
		number, repeat, folded := strings.Cut(part, "(x")
		n, err := smallNumber(number)
		times := 1
		if err == nil && folded {
			inner, closed := strings.CutSuffix(repeat, ")")
			if times, err = smallNumber(inner); err == nil && (!closed || times == 0) {
				err = fmt.Errorf(`not of the form "2(x3)"`)
			}
		}
		if err == nil && len(tasks)+times > maxHosts {
			err = fmt.Errorf("more than %d nodes", maxHosts)
		}
		if err != nil {
			return nil, fmt.Errorf("tasks per node %s: %q: %w", excerpt(s, 0), part, err)
		}
		for range times {
			tasks = append(tasks, n)
		}
	}
	return tasks, nil
}

// maxSmallNumber bounds every count that is read from the environment. It is far
// above what Slurm allows, and sums of maxHosts of them stay in range.
const maxSmallNumber = 1<<31 - 1

// smallNumber reads a decimal number without a sign.
func smallNumber(s string) (int, error) {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return 0, fmt.Errorf("%q is not a number", s)
		}
	}
	n, err := strconv.Atoi(s)
	switch {
	case s == "":
		return 0, fmt.Errorf("a number is missing")
	case err != nil || n > maxSmallNumber:
		return 0, fmt.Errorf("%q is too large", s)
	}
	return n, nil
}
