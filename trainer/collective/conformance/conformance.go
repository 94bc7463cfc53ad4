// Package conformance holds every implementation of collective.Communicator to one
// reference: what an operation makes of given numbers, in all types, sizes and numbers
// of ranks; that bits are the same on all ranks, in all runs and by all reductions; and
// what becomes of mistakes and of ranks that are lost.
//
// It does not measure, and does not start processes: the ranks of a member are
// goroutines here, whatever is between them.
package conformance

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// Member is an implementation.
type Member struct {
	// Connect returns the communicators of n ranks, which the test closes.
	Connect func(t testing.TB, n int, timeout time.Duration) []collective.Communicator
	// Sizes are the numbers of elements at which it changes its ways, beside those
	// that every member is tried with.
	Sizes []int
	// Ranks are the numbers of ranks; 1 to 5 if nil.
	Ranks []int
	// AnyOrder is that all-reduce, reduce and reduce-scatter may each have an order
	// of their own; it must be the same run after run all the same.
	AnyOrder bool
	// ScaledMean says that a mean is the sum of elements that were divided before, as
	// NCCL's: it is tried with elements of which that has the same bits.
	ScaledMean bool
}

// long is a timeout that no test reaches.
const long = time.Minute

// Run tries all that a member promises.
func Run(t *testing.T, m Member) {
	if m.Ranks == nil {
		m.Ranks = []int{1, 2, 3, 4, 5}
	}
	for _, n := range m.Ranks {
		t.Run(fmt.Sprint(n, " ranks"), func(t *testing.T) {
			comms := connect(t, m, n, long)
			t.Run("operations", func(t *testing.T) { operations(t, comms, m) })
			t.Run("sums", func(t *testing.T) { sums(t, comms) })
			t.Run("messages", func(t *testing.T) { messages(t, comms) })
			t.Run("requests", func(t *testing.T) { requests(t, comms) })
			t.Run("groups", func(t *testing.T) { groups(t, comms) })
			t.Run("keys", func(t *testing.T) { keys(t, comms) })
			t.Run("memory", func(t *testing.T) { memory(t, comms) })
			t.Run("barrier", func(t *testing.T) { barrier(t, comms) })
		})
	}
	t.Run("bits", func(t *testing.T) { bits(t, m) })
	t.Run("mistakes", func(t *testing.T) { mistakes(t, m) })
	t.Run("standoffs", func(t *testing.T) { standoffs(t, m) })
	t.Run("silence", func(t *testing.T) { silence(t, m) })
	t.Run("loss", func(t *testing.T) { loss(t, m) })
	t.Run("closing", func(t *testing.T) { closing(t, m) })
	t.Run("cancellation", func(t *testing.T) { cancellation(t, m) })
}

// Values tries only what operations make of numbers, and their bits.
func Values(t *testing.T, m Member) {
	for _, n := range m.Ranks {
		t.Run(fmt.Sprint(n, " ranks"), func(t *testing.T) { operations(t, connect(t, m, n, long), m) })
	}
	t.Run("bits", func(t *testing.T) { bits(t, m) })
}

// Ranks tries what some ranks can by themselves while the others, which other processes
// have, do the same.
func Ranks(t *testing.T, m Member, comms []collective.Communicator) {
	operations(t, comms, m)
	sums(t, comms)
	messages(t, comms)
	requests(t, comms)
	groups(t, comms)
	keys(t, comms)
	memory(t, comms)
}

func connect(t testing.TB, m Member, n int, timeout time.Duration) []collective.Communicator {
	t.Helper()
	comms := m.Connect(t, n, timeout)
	t.Cleanup(func() {
		for _, c := range comms {
			if err := c.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
	})
	return comms
}

// all runs f on every rank and returns the errors by rank.
func all(comms []collective.Communicator, f func(c collective.Communicator) error) []error {
	errs := make([]error, len(comms))
	var wg sync.WaitGroup
	for i, c := range comms {
		wg.Go(func() { errs[i] = f(c) })
	}
	wg.Wait()
	return errs
}

// each is all, of which none may fail.
func each(t *testing.T, comms []collective.Communicator, f func(c collective.Communicator) error) {
	t.Helper()
	for r, err := range all(comms, f) {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}
