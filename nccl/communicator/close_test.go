//go:build cuda

package communicator_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/nccl/communicator"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/conformance"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/library"
)

// slowSender is a host communicator whose splits take a while to send messages. It counts the messages
// that are canceled in the meantime.
type slowSender struct {
	collective.Communicator
	canceled *atomic.Int32
}

func (s slowSender) Split(ctx context.Context, color, key int) (collective.Communicator, error) {
	c, err := s.Communicator.Split(ctx, color, key)
	return slowSender{c, s.canceled}, err
}

func (s slowSender) Start(ctx context.Context, c collective.Call) *collective.Request {
	if c.Kind != collective.KindSend {
		return s.Communicator.Start(ctx, c)
	}
	return collective.Begin(func() error {
		time.Sleep(200 * time.Millisecond)
		if ctx.Err() != nil {
			s.canceled.Add(1)
		}
		return s.Communicator.Do(ctx, c)
	})
}

// TestCloseAwaitsItsMessages checks that Close does not cancel its own messages to the neighbors, which
// would fail the host communicator, if the messages of the neighbors have arrived before.
func TestCloseAwaitsItsMessages(t *testing.T) {
	const n = 2
	l, control := open(t, library.NCCL), hosts(t, n)
	var canceled atomic.Int32
	comms := conformance.Every(t, n, func(i int) (*communicator.Comm, error) {
		c := control[i]
		if i == 0 {
			c = slowSender{c, &canceled}
		}
		return communicator.Connect(t.Context(), communicator.Options{Library: l, GPU: openGPU(t, i), Control: c,
			Host: "localhost", Interface: "=lo", ConnectTimeout: time.Minute, Timeout: time.Minute})
	})
	conformance.Every(t, n, func(i int) (struct{}, error) { return struct{}{}, comms[i].Close() })
	if c := canceled.Load(); c > 0 {
		t.Errorf("%d messages were canceled", c)
	}
	conformance.Every(t, n, func(i int) (struct{}, error) {
		return struct{}{}, control[i].Do(t.Context(), collective.Barrier())
	})
}
