package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// invalidCalls tests that invalid calls fail on every rank, soon, and that at least one error
// states the cause.
func invalidCalls(t *testing.T, m Member) {
	for name, tt := range map[string]struct {
		f    func(c collective.Communicator) error
		want string
	}{
		"root": {func(c collective.Communicator) error {
			return c.Do(t.Context(), collective.Broadcast(make([]float32, 3), 7))
		}, "rank 7 is out of range"},
		"root of one": {func(c collective.Communicator) error {
			return c.Do(t.Context(), collective.Broadcast(make([]float32, 3), c.Rank()/2*9))
		}, "rank 9 is out of range"},
		"other root": {func(c collective.Communicator) error {
			return c.Do(t.Context(), collective.Broadcast(make([]float32, 3), c.Rank()/2))
		}, "root 1"},
		"parts": {func(c collective.Communicator) error {
			return c.Do(t.Context(), collective.AllGather(make([]float32, 5), make([]float32, 2)))
		}, "does not have 3 parts of 8"},
		"other length": {func(c collective.Communicator) error {
			return c.Do(t.Context(), collective.AllReduce(make([]float32, 10+2*(c.Rank()/2)), collective.Sum))
		}, "differ in length"},
		"other length of large ones": {func(c collective.Communicator) error {
			return c.Do(t.Context(), collective.AllReduce(make([]float32, 1_000_000+c.Rank()), collective.Sum))
		}, "differ in length"},
		"other type": {func(c collective.Communicator) error {
			if c.Rank() == 1 {
				return c.Do(t.Context(), collective.AllReduce(make([]int32, 10), collective.Sum))
			}
			return c.Do(t.Context(), collective.AllReduce(make([]float32, 10), collective.Sum))
		}, "int32, sum"},
		"other reduction": {func(c collective.Communicator) error {
			o := collective.Sum
			if c.Rank() == 1 {
				o = collective.Max
			}
			return c.Do(t.Context(), collective.AllReduce(make([]int32, 10), o))
		}, "int32, max"},
		"other operation": {func(c collective.Communicator) error {
			if c.Rank() == 2 {
				return c.Do(t.Context(), collective.Barrier())
			}
			return c.Do(t.Context(), collective.AllReduce(make([]float32, 10), collective.Sum))
		}, "have diverged"},
		"length of a message": {func(c collective.Communicator) error {
			if c.Rank() == 0 {
				return c.Do(t.Context(), collective.Send(make([]float32, 3), 1, 5))
			}
			if c.Rank() == 1 {
				return c.Do(t.Context(), collective.Receive(make([]float32, 4), 0, 5))
			}
			return c.Do(t.Context(), collective.Barrier())
		}, "differ in length"},
		"length of a large message": {func(c collective.Communicator) error {
			if c.Rank() == 0 {
				return c.Do(t.Context(), collective.Send(make([]byte, 400_000), 1, 5))
			}
			if c.Rank() == 1 {
				return c.Do(t.Context(), collective.Receive(make([]byte, 20), 0, 5))
			}
			return c.Do(t.Context(), collective.Barrier())
		}, "differ in length"},
		"length of a small message": {func(c collective.Communicator) error {
			if c.Rank() == 0 {
				return c.Do(t.Context(), collective.Send(make([]byte, 20), 1, 5))
			}
			if c.Rank() == 1 {
				return c.Do(t.Context(), collective.Receive(make([]byte, 400_000), 0, 5))
			}
			return c.Do(t.Context(), collective.Barrier())
		}, "differ in length"},
		"message to oneself": {func(c collective.Communicator) error {
			return c.Do(t.Context(), collective.Send(make([]float32, 3), c.Rank(), 0))
		}, "is this rank"},
	} {
		t.Run(name, func(t *testing.T) {
			comms := connect(t, m, 3, long)
			found := false
			for r, err := range all(comms, func(c collective.Communicator) error {
				// A rank that only sends detects the error in the next operation.
				return errors.Join(tt.f(c), c.Do(t.Context(), collective.Barrier()))
			}) {
				if err == nil {
					t.Errorf("rank %d has no error", r)
					continue
				}
				var e *collective.Error
				if !errors.As(err, &e) {
					t.Errorf("rank %d: %v is not a collective.Error", r, err)
				}
				if strings.Contains(err.Error(), "no answer within") {
					t.Errorf("rank %d has waited for the timeout: %v", r, err)
				}
				found = found || strings.Contains(err.Error(), tt.want)
				t.Logf("rank %d: %v", r, err)
			}
			if !found {
				t.Errorf("no error says %q", tt.want)
			}
		})
	}
}

// deadlocks tests that ranks that wait for each other, because their programs have diverged, fail
// long before the timeout.
func deadlocks(t *testing.T, m Member) {
	for name, tt := range map[string]struct {
		call func(rank int) collective.Call
		want string
	}{
		"two operations": {func(rank int) collective.Call {
			if rank == 0 {
				return collective.Gather(make([]float32, 30), make([]float32, 10), 0)
			}
			return collective.Broadcast(make([]float32, 10), 0)
		}, "have diverged"},
		"two lengths": {func(rank int) collective.Call {
			if rank == 0 {
				return collective.Broadcast(make([]byte, 300_000), 0)
			}
			return collective.Broadcast(make([]byte, 20_000), 0)
		}, "differ in length"},
	} {
		t.Run(name, func(t *testing.T) {
			comms := connect(t, m, 3, long)
			began := time.Now()
			for r, err := range all(comms, func(c collective.Communicator) error { return c.Do(t.Context(), tt.call(c.Rank())) }) {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("rank %d says %v, want %q", r, err, tt.want)
				}
			}
			if took := time.Since(began); took > long/2 {
				t.Errorf("they were notified after %v, of a timeout of %v", took, long)
			}
		})
	}
}

// closing tests that operations in progress fail when their communicator, or a group, closes.
func closing(t *testing.T, m Member) {
	for name, size := range map[string]int{"small": 100, "large": 1_000_000} {
		for _, whole := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", whole ", whole), func(t *testing.T) {
				comms := connect(t, m, 2, long)
				each(t, comms, func(c collective.Communicator) (err error) {
					g := c
					if !whole {
						if g, err = c.Split(t.Context(), 0, 0); err != nil {
							return err
						}
					}
					if c.Rank() == 1 {
						return nil
					}
					started := g.Start(t.Context(), collective.AllReduce(make([]float32, size), collective.Sum))
					time.Sleep(20 * time.Millisecond)
					if err := g.Close(); err != nil {
						return err
					}
					if err := started.Wait(); err == nil {
						return fmt.Errorf("an operation of one rank has succeeded")
					}
					return nil
				})
			})
		}
	}
}

// unresponsiveRank tests that the error names a rank that does not enter before the timeout.
func unresponsiveRank(t *testing.T, m Member) {
	const timeout = 300 * time.Millisecond
	comms := connect(t, m, 2, timeout)
	for name, call := range map[string]func() collective.Call{
		"all-reduce": func() collective.Call { return collective.AllReduce(make([]float32, 1_000_000), collective.Sum) },
		"receive":    func() collective.Call { return collective.Receive(make([]float32, 3), 1, 9) },
	} {
		t.Run(name, func(t *testing.T) {
			comms := comms
			if name == "receive" {
				comms = connect(t, m, 2, timeout)
			}
			start := time.Now()
			err := comms[0].Do(t.Context(), call())
			if took := time.Since(start); took < timeout {
				t.Errorf("took %v", took)
			}
			var e *collective.Error
			if !errors.As(err, &e) || e.Peer.Rank != 1 || e.Op != name || !strings.Contains(err.Error(), "no answer within 300ms") {
				t.Errorf("got %v", err)
			}
			if again := comms[0].Do(t.Context(), collective.Barrier()); !errors.Is(again, err) {
				t.Errorf("the failure is not final: %v", again)
			}
			// The other rank is notified or detects the failure.
			if err := comms[1].Do(t.Context(), collective.Barrier()); err == nil || !strings.Contains(err.Error(), name+" ") {
				t.Errorf("the silent rank hears %v", err)
			}
		})
	}
}

// loss tests that all other ranks name a rank that exits, long before the timeout.
func loss(t *testing.T, m Member) {
	for _, n := range []int{2, 4} {
		for _, size := range []int{100, 1_000_000} {
			t.Run(fmt.Sprint(n, " ranks, ", size, " elements"), func(t *testing.T) {
				comms := connect(t, m, n, long)
				errs := all(comms, func(c collective.Communicator) error {
					buf := make([]float32, size)
					for i := range 5 {
						if c.Rank() == 1 && i == 3 {
							return c.Close()
						}
						if err := c.Do(t.Context(), collective.AllReduce(buf, collective.Sum)); err != nil {
							return err
						}
					}
					return nil
				})
				// A rank that is still in the previous operation may fail there.
				for r, err := range errs {
					var e *collective.Error
					if r != 1 && (!errors.As(err, &e) || e.Peer.Rank != 1 || e.Op != "all-reduce" || e.Sequence != 3 && e.Sequence != 2) {
						t.Errorf("rank %d says %v", r, err)
					}
					if err != nil && strings.Contains(err.Error(), "no answer within") {
						t.Errorf("rank %d has waited for the timeout: %v", r, err)
					}
				}
			})
		}
	}
}

// cancellation tests that an operation fails when its context is canceled, with the cause.
func cancellation(t *testing.T, m Member) {
	comms := connect(t, m, 2, long)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("rank 7 was lost")
	time.AfterFunc(50*time.Millisecond, func() { cancel(why) })
	if err := comms[0].Do(ctx, collective.Barrier()); !errors.Is(err, why) {
		t.Errorf("got %v, want the cause", err)
	}
}
