package collective_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/conformance"
)

// late is when ranks come that others wait for: after these have asked for the first time.
const late = 1200 * time.Millisecond

// A rank that is late is waited for, however often it is asked. One that comes late to
// another operation is found out when it is asked again, and all are told, long before the
// timeout.
func TestRanksThatOnlyWaitAreTold(t *testing.T) {
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
		// Rank 0 asks rank 1, which is not there yet, and both others wait for rank 0.
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
		t.Errorf("they were told after %v", took)
	}
}
