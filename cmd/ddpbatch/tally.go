package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/slurm"
)

// tally counts jobs by state and returns text such as "2 running, 1 pending".
func tally(states []slurm.JobState) string {
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
