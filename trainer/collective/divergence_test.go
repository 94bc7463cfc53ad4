package collective_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/conformance"
)

// late is the delay of late ranks: after the first query of the ranks that wait for them.
const late = 1200 * time.Millisecond

// TestWaitingRanksDetectDivergence checks that ranks wait for late ranks, however often they query
// them. If late ranks then perform a different operation, all ranks fail long before the timeout.
func TestWaitingRanksDetectDivergence(t *testing.T) {
	for _, tt := range []struct {
		name  string
		nodes []int // node of each rank; ranks of a node share memory
		other []int // late ranks, which perform the other operation
	}{
		// Rank 0 queries rank 1, which has not entered yet, and both other ranks wait for rank 0.
		{name: "messages", nodes: []int{0, 1, 2}, other: []int{1, 2}},
		// Rank 0 waits for a message of rank 1, which waits for rank 0 in shared memory.
		{name: "messages and shared memory", nodes: []int{0, 0, 1}, other: []int{1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			const timeout = time.Minute
			comms := processes(tt.nodes, true, 1)(t, 3, timeout)
			conformance.Every(t, 3, func(rank int) (struct{}, error) {
				if slices.Contains(tt.other, rank) {
					time.Sleep(late)
				}
				return struct{}{}, comms[rank].Do(t.Context(), collective.AllReduce(make([]float32, 10), collective.Sum))
			})
			began := time.Now()
			errs := conformance.Every(t, 3, func(rank int) (error, error) {
				c := collective.Gather(make([]float32, 30), make([]float32, 10), 0)
				if slices.Contains(tt.other, rank) {
					time.Sleep(late)
					c = collective.Broadcast(make([]float32, 10), 0)
				}
				err := comms[rank].Do(t.Context(), c)
				if err == nil { // the message of a gather does not wait for its receiver
					err = comms[rank].Do(t.Context(), collective.Barrier())
				}
				return err, nil
			})
			for r, err := range errs {
				if err == nil || !strings.Contains(err.Error(), "the ranks' programs have diverged") {
					t.Errorf("rank %d says %v", r, err)
				}
			}
			if took := time.Since(began); took > timeout/2 {
				t.Errorf("they were notified after %v", took)
			}
		})
	}
}
