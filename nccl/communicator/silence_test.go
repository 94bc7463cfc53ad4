//go:build cuda

package communicator_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/nccl/communicator"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/conformance"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/library"
)

// recorder is a host communicator that records the timeouts of the messages that its splits receive.
type recorder struct {
	collective.Communicator
	mu       *sync.Mutex
	timeouts *[]time.Duration
}

func (r recorder) Split(ctx context.Context, color, key int) (collective.Communicator, error) {
	c, err := r.Communicator.Split(ctx, color, key)
	return recorder{c, r.mu, r.timeouts}, err
}

func (r recorder) Start(ctx context.Context, c collective.Call) *collective.Request {
	if c.Kind == collective.KindReceive {
		r.mu.Lock()
		*r.timeouts = append(*r.timeouts, collective.TimeoutOf(ctx, 0))
		r.mu.Unlock()
	}
	return r.Communicator.Start(ctx, c)
}

// TestNeighborsMayStaySilent checks that the messages of the neighbors have no timeout, because they
// arrive only after an alarm, or at the end of a run, which may last for weeks.
func TestNeighborsMayStaySilent(t *testing.T) {
	const n = 2
	l, control := open(t, library.NCCL), hosts(t, n)
	var mu sync.Mutex
	received := make([][]time.Duration, n)
	conformance.Every(t, n, func(i int) (*communicator.Comm, error) {
		return communicator.Connect(t.Context(), communicator.Options{Library: l, GPU: openGPU(t, i), Control: recorder{control[i], &mu, &received[i]},
			Host: "localhost", Interface: "=lo", ConnectTimeout: time.Minute, Timeout: time.Minute})
	})
	mu.Lock()
	defer mu.Unlock()
	for rank, timeouts := range received {
		unlimited := 0
		for _, d := range timeouts {
			if d == collective.NoTimeout {
				unlimited++
			}
		}
		if unlimited != 2 {
			t.Errorf("rank %d: timeouts of received messages are %v, want two without a limit", rank, timeouts)
		}
	}
}
