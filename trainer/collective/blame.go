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

// silence is the failure of an operation in which a rank was not heard of for so long.
type silence time.Duration

// Error is what the caller reads if no more can be found out.
func (s silence) Error() string { return fmt.Sprintf("no answer within %s", time.Duration(s)) }

// standing is where a rank is in the operations of a group: in the one with this
// signature, or before it where that has no kind.
type standing struct {
	sequence  uint64
	signature mesh.Signature
}

// Blames returns the rank that the operation waited for in vain, if that is why it failed
// and this rank has found it out by itself.
func (e *Error) Blames() (rank int, ok bool) {
	var quiet silence
	return e.Peer.Rank, errors.As(e.Err, &quiet)
}

// Told says that another rank has found out, and has told this one.
func (e *Error) Told() bool {
	var told *mesh.Told
	return errors.As(e.Err, &told)
}

// waiting is the rank that an operation of a group waits for. That stays when it is
// given up, so that others who give up can still follow it.
type waiting struct{ rank atomic.Int32 } // one more than it; 0 is none

func (w *waiting) begin(rank int) { w.rank.Store(int32(rank) + 1) }
func (w *waiting) end()           { w.rank.Store(0) }

// groups are those that a rank is in, for other ranks that ask where it is.
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

// state is where this rank is in a group; in one that it has not come to, before the
// first operation.
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

// How long a rank has to say where it is: it need not stop for that what it does.
const (
	leastAnswer = 500 * time.Millisecond
	mostAnswer  = 5 * time.Second
)

// blame finds the rank that keeps an operation from its end, where one was not heard
// of: that one may itself wait for another, and says so when it is asked. It follows
// them to the one that does not wait, is not there yet, does not answer, or has passed
// other arguments than this rank. Ranks that wait for each other have all done their part:
// what one of them sent is lost on its way.
func (g *group) blame(ctx context.Context, at standing, err error) error {
	var first *mesh.PeerError
	var quiet silence
	if !errors.As(err, &first) || !errors.As(err, &quiet) {
		return err
	}
	patience := min(max(timeoutOf(ctx, g.timeout)/4, leastAnswer), mostAnswer)
	way := []int{g.world.rank} // each waits for the next
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
			return failure // another rank has found out, or this one is gone
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

// someRanks names ranks, the first few of many, in order.
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
