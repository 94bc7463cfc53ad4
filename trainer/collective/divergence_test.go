package collective_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/conformance"
)

// late is the delay of late ranks: after the first query of the ranks that wait for them.
const late = 1200 * time.Millisecond

// TestWaitingRanksDetectDivergence checks that ranks wait for a late rank, however often they
// query it. If the late rank then performs a different operation, all ranks fail long before the
// timeout.
func TestWaitingRanksDetectDivergence(t *testing.T) {
	t.Parallel()
	const timeout = time.Minute
	comms := processes(nil, false, 1)(t, 3, timeout)
	conformance.Every(t, 3, func(rank int) (struct{}, error) {
		if rank != 0 {
			time.Sleep(late)
		}
		return struct{}{}, comms[rank].Do(t.Context(), collective.AllReduce(make([]float32, 10), collective.Sum))
	})
	began := time.Now()
	errs := conformance.Every(t, 3, func(rank int) (error, error) {
		// Rank 0 queries rank 1, which has not entered yet, and both other ranks wait for rank 0.
		if rank == 0 {
			return comms[0].Do(t.Context(), collective.Gather(make([]float32, 30), make([]float32, 10), 0)), nil
		}
		time.Sleep(late)
		return comms[rank].Do(t.Context(), collective.Broadcast(make([]float32, 10), 0)), nil
	})
	for r, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "the ranks' programs have diverged") {
			t.Errorf("rank %d says %v", r, err)
		}
	}
	if took := time.Since(began); took > timeout/2 {
		t.Errorf("they were notified after %v", took)
	}
}
