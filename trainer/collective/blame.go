package collective

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/mesh"
)

// silence is the error of an operation in which a rank did not respond for the given time.
type silence time.Duration

// Error returns the message for the case that no more specific cause is found.
func (s silence) Error() string { return fmt.Sprintf("no answer within %s", time.Duration(s)) }

// standing is the position of a rank in the operations of a group: in the operation with this
// signature, or before it if the signature has no kind.
type standing struct {
	sequence  uint64
	signature mesh.Signature
}

// Blames returns the rank that did not respond, if that is why the operation failed and this rank
// detected it.
func (e *Error) Blames() (rank int, ok bool) {
	var quiet silence
	return e.Peer.Rank, errors.As(e.Err, &quiet)
}

// Told reports whether another rank detected the failure and notified this one.
func (e *Error) Told() bool {
	var told *mesh.Told
	return errors.As(e.Err, &told)
}

// waiting holds the rank that an operation of a group waits for. The rank remains set after a
// timeout, so that other ranks that time out can still follow the chain.
type waiting struct{ rank atomic.Int32 } // rank plus 1; 0 if the operation waits for none

func (w *waiting) begin(rank int) { w.rank.Store(int32(rank) + 1) }
func (w *waiting) end()           { w.rank.Store(0) }

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

// state returns the state of this rank in a group. Before the rank creates the group, the state is
// that before the first operation.
func (s *groups) state(id uint64) mesh.State {
	s.mu.Lock()
	g := s.all[id]
	s.mu.Unlock()
	if g == nil {
		return mesh.State{WaitsFor: -1}
	}
	at := g.standing()
	return mesh.State{Sequence: at.sequence, Signature: at.signature, WaitsFor: int(g.waiting.rank.Load()) - 1}
}

// A rank has this long to answer a query about its state. It answers in the background.
const (
	leastAnswer = 500 * time.Millisecond
	mostAnswer  = 5 * time.Second
)

// blame finds the root cause of a timeout. The unresponsive rank may itself wait for another rank,
// and answers so when it is queried. blame follows this chain to a rank that does not wait, has not
// entered the operation, does not answer, or has passed different arguments. If the ranks wait for
// each other in a cycle, all have done their part, and a message between them was lost.
func (g *group) blame(ctx context.Context, at standing, err error) error {
	var first *mesh.PeerError
	var quiet silence
	if !errors.As(err, &first) || !errors.As(err, &quiet) {
		return err
	}
	patience := min(max(timeoutOf(ctx, g.timeout)/4, leastAnswer), mostAnswer)
	way := []int{g.world.rank} // each rank waits for the next
	suspect := first.Peer
	for !slices.Contains(way, suspect) {
		way = append(way, suspect)
		within, cancel := context.WithTimeoutCause(ctx, patience, quiet)
		state, failure := g.mesh.Ask(within, suspect, g.id)
		cancel()
		found := func(what string, args ...any) error {
			return &mesh.PeerError{Peer: suspect, Err: fmt.Errorf("%w: that rank %s", quiet, fmt.Sprintf(what, args...))}
		}
		other := at.other(suspect, state)
		switch {
		case errors.As(failure, &quiet):
			return found("does not say where it is either: it is stopped, or cut off from here")
		case failure != nil:
			return failure // another rank has reported the failure, or this one is gone
		case other != nil:
			return other
		case state.Signature.Kind == 0 && state.Sequence <= at.sequence:
			return found("has not entered the operation")
		case state.Sequence > at.sequence:
			return found("has left the operation, but what it sent to rank %d did not arrive", way[len(way)-2])
		case state.WaitsFor < 0 && state.Sequence < at.sequence:
			return found("has not entered the operation, and is still in %v %d", Kind(state.Signature.Kind), state.Sequence)
		case state.WaitsFor < 0:
			return found("is in the operation, but is slow")
		}
		suspect = state.WaitsFor
	}
	circle := way[slices.Index(way, suspect):]
	if suspect == g.world.rank {
		suspect = first.Peer
	}
	return &mesh.PeerError{Peer: suspect, Err: fmt.Errorf("%w: %s wait for each other: what one of them sent did not arrive, as where the network between them is cut", quiet, someRanks(circle))}
}

// someRanks lists the first few ranks in ascending order.
func someRanks(ranks []int) string {
	const few = 8
	ranks = slices.Sorted(slices.Values(ranks))
	text := "ranks"
	for i, r := range ranks[:min(len(ranks), few)] {
		if i > 0 {
			text += ","
		}
		text += fmt.Sprintf(" %d", r)
	}
	if more := len(ranks) - few; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
