package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// parseElements parses a list of trial indices from 0 to n-1, such as "0-3,7". The result is
// sorted.
func parseElements(list string, n int) ([]int, error) {
	var all []int
	for part := range strings.SplitSeq(list, ",") {
		low, high, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			high = low
		}
		first, err := strconv.ParseUint(low, 10, 31)
		last, err2 := strconv.ParseUint(high, 10, 31)
		if err != nil || err2 != nil || first > last {
			return nil, usage(fmt.Sprintf("%q is not a list of elements such as 0-3,7", list))
		}
		if int(last) >= n {
			return nil, usage(fmt.Sprintf("there is no element %d: the sweep has 0 to %d", last, n-1))
		}
		for i := first; i <= last; i++ {
			all = append(all, int(i))
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}
