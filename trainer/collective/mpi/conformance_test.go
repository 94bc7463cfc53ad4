package mpi_test

import (
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/conformance"
)

// TestConformance runs the conformance suite. Each rank is a process under mpirun that performs
// the calls of the suite.
func TestConformance(t *testing.T) {
	for _, i := range implementations {
		t.Run(i.name, func(t *testing.T) {
			conformance.Run(t, conformance.Member{
				Connect: func(t testing.TB, n int, timeout time.Duration) []collective.Communicator {
					out := make([]collective.Communicator, n)
					for r, process := range i.ranks(t, n, timeout) {
						out[r] = &proxy{remote: process, rank: r, size: n}
					}
					return out
				},
				AnyOrder: true,
				// With more ranks than cores, ranks yield to each other. The tests of groups and
				// bits still use up to 5 ranks.
				Ranks: []int{1, 2, 3},
				// Sizes around the size of a window, in total and per rank.
				Sizes: []int{1 << 20, 1<<20 + 1},
			})
		})
	}
}
