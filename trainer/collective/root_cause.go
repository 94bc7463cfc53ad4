package collective

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/mesh"
)

// timeoutError is the error of an operation in which a rank did not respond for the given time.
type timeoutError time.Duration

// Error returns the message for the case that no more specific cause is found.
func (s timeoutError) Error() string { return fmt.Sprintf("no answer within %s", time.Duration(s)) }

// groupState is the position of a rank in the operations of a group: in the operation with this
// signature, or before it if the signature has no kind.
type groupState struct {
	sequence  uint64
	signature mesh.Signature
}

// FailedRank returns the rank that did not respond, if that is why the operation failed and this
// rank detected it.
func (e *Error) FailedRank() (rank int, ok bool) {
	var quiet timeoutError
	return e.Peer.Rank, errors.As(e.Err, &quiet)
}

// IsRemote reports whether another rank detected the failure and notified this one.
func (e *Error) IsRemote() bool {
	var abort *mesh.RemoteAbort
	return errors.As(e.Err, &abort)
}

// waitedRank holds the rank that an operation of a group waits for. The rank remains set after a
// timeout, so that other ranks that time out can still follow the chain.
type waitedRank struct{ rank atomic.Int32 } // rank plus 1; 0 if the operation waits for no rank

func (w *waitedRank) begin(rank int) { w.rank.Store(int32(rank) + 1) }
func (w *waitedRank) end()           { w.rank.Store(0) }

// groups holds the groups of a rank, to answer queries of other ranks about its state.
type groups struct {
	mu  sync.Mutex
	all map[uint64]*group
}

func (s *groups) add(g *group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[uint64]*group{}
	}
	s.all[g.id] = g
}

func (s *groups) remove(g *group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[g.id] == g {
		delete(s.all, g.id)
	}
}

// state returns the state of this rank in a group. If the rank has not created the group
// yet, the state is "before the first operation".
func (s *groups) state(id uint64) mesh.State {
	s.mu.Lock()
	g := s.all[id]
	s.mu.Unlock()
	if g == nil {
		return mesh.State{WaitsFor: -1}
	}
	at := g.state()
	return mesh.State{Sequence: at.sequence, Signature: at.signature, WaitsFor: int(g.waiting.rank.Load()) - 1}
}

// A rank has this long to answer a query about its state. It answers in the background.
const (
	minQueryTimeout = 500 * time.Millisecond
	maxQueryTimeout = 5 * time.Second
)

// findRootCause finds the root cause of a timeout. The unresponsive rank may itself wait for
// another rank, and answers so when it is queried. findRootCause follows this chain to a rank that does not
// wait, has not entered the operation, does not answer, or has passed different arguments. If the
// ranks wait for each other in a cycle, all have done their part, and a message between them was
// lost.
func (g *group) findRootCause(ctx context.Context, at groupState, err error) error {
	var first *mesh.PeerError
	var quiet timeoutError
	if !errors.As(err, &first) || !errors.As(err, &quiet) {
		return err
	}
	timeout := min(max(TimeoutOf(ctx, g.timeout)/4, minQueryTimeout), maxQueryTimeout)
	chain := []int{g.world.rank} // each rank waits for the next
	suspect := first.Peer
	for !slices.Contains(chain, suspect) {
		chain = append(chain, suspect)
		within, cancel := context.WithTimeoutCause(ctx, timeout, quiet)
		state, failure := g.mesh.Query(within, suspect, g.id)
		cancel()
		found := func(what string, args ...any) error {
			return &mesh.PeerError{Peer: suspect, Err: fmt.Errorf("%w: that rank %s", quiet, fmt.Sprintf(what, args...))}
		}
		other := at.mismatch(suspect, state)
		switch {
		case errors.As(failure, &quiet):
			return found("does not respond to a query of its state: it is stopped or unreachable")
		case failure != nil:
			return failure // another rank has reported the failure, or this one is gone
		case other != nil:
			return other
		case state.Signature.Kind == 0 && state.Sequence <= at.sequence:
			return found("has not entered the operation")
		case state.Sequence > at.sequence:
			return found("has left the operation, but its message to rank %d was lost", chain[len(chain)-2])
		case state.WaitsFor < 0 && state.Sequence < at.sequence:
			return found("has not entered the operation, and is still in %v %d", Kind(state.Signature.Kind), state.Sequence)
		case state.WaitsFor < 0:
			return found("is in the operation, but is slow")
		}
		suspect = state.WaitsFor
	}
	cycle := chain[slices.Index(chain, suspect):]
	if suspect == g.world.rank {
		suspect = first.Peer
	}
	return &mesh.PeerError{Peer: suspect, Err: fmt.Errorf("%w: %s wait for each other: a message between them was lost, for example because their network is cut", quiet, format.Ranks(cycle))}
}
