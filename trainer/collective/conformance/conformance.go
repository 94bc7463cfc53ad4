// Package conformance tests every implementation of collective.Communicator against one reference:
// the results for all operations, types, sizes, and numbers of ranks; bit-identical results on all
// ranks, in all runs, and for all reductions; and the behavior on errors and lost ranks.
//
// It does not measure performance and does not start processes: all ranks are goroutines of the
// test, whatever transport connects them.
package conformance

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// A Member is an implementation to test.
type Member struct {
	// Connect returns the communicators of n ranks. The test closes them.
	Connect func(t testing.TB, n int, timeout time.Duration) []collective.Communicator
	// Sizes contains the numbers of elements at which the implementation changes its algorithm. The
	// test uses them in addition to its default sizes.
	Sizes []int
	// Ranks contains the numbers of ranks to test (default: 1 to 5).
	Ranks []int
	// AnyOrder is set if all-reduce, reduce, and reduce-scatter may each use a different order.
	// Each order must still be the same in every run.
	AnyOrder bool
	// ScaledMean is set if a mean is the sum of pre-divided elements, as in NCCL. The test then
	// uses elements for which both ways give the same bits.
	ScaledMean bool
}

// long is a timeout that no test reaches.
const long = 5 * time.Minute

// Run tests all guarantees of a member.
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
	t.Run("mistakes", func(t *testing.T) { invalidCalls(t, m) })
	t.Run("standoffs", func(t *testing.T) { deadlocks(t, m) })
	t.Run("silence", func(t *testing.T) { unresponsiveRank(t, m) })
	t.Run("loss", func(t *testing.T) { loss(t, m) })
	t.Run("closing", func(t *testing.T) { closing(t, m) })
	t.Run("cancellation", func(t *testing.T) { cancellation(t, m) })
}

// Values tests only the results of operations and their bits.
func Values(t *testing.T, m Member) {
	for _, n := range m.Ranks {
		t.Run(fmt.Sprint(n, " ranks"), func(t *testing.T) { operations(t, connect(t, m, n, long), m) })
	}
	t.Run("bits", func(t *testing.T) { bits(t, m) })
}

// Ranks tests the given ranks while other processes run the same test with the other ranks.
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

// each runs f on every rank and fails the test if one fails.
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
