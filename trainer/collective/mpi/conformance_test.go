package mpi_test

import (
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/conformance"
)

// Each rank is a process under mpirun, which does what the suite asks it for.
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
				// Of more ranks than cores, each looks away from the others; groups and bits
				// are tried with up to 5 all the same.
				Ranks: []int{1, 2, 3},
				// Around a window, and some for each rank.
				Sizes: []int{1 << 20, 1<<20 + 1},
			})
		})
	}
}
