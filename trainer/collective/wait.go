package collective

import (
	"context"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/mesh"
	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/sched"
)

// sync waits until all ranks have called it as often as this one.
func (s *shared) sync(ctx context.Context) error {
	s.phase++
	mine := s.board.slot(s.rank)
	if mine.core.Load() != 0 {
		mine.core.Store(0)
	}
	mine.phase.Store(s.phase)
	for r := range s.members {
		if err := s.await(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// How a rank waits: first it looks without pause, for as long as a rank that is nearly
// there may take, and less long while that is in vain, but never less than a small sum
// takes two ranks with a core each: else they would not find back to looking; then it
// lets others run; then it sleeps, longer and longer. It does not look at all for a rank
// that needs this very core.
const (
	looks      = 20_000 // some 10 us
	mostDoubt  = 3
	yields     = 200
	firstSleep = 20 * time.Microsecond
	lastSleep  = 500 * time.Microsecond
)

func (s *shared) await(ctx context.Context, r int) error {
	other := s.board.slot(r)
	phase := &other.phase
	if phase.Load() >= s.phase {
		if other.core.Load() != 0 {
			s.keepApart(r) // it has given way: maybe to this one
		}
		return nil
	}
	tries := s.board.looks() >> s.doubt
	if s.together {
		tries = 0
	}
	for range tries {
		if phase.Load() >= s.phase {
			s.doubt = max(s.doubt-1, 0)
			return nil
		}
	}
	s.doubt = min(s.doubt+1, mostDoubt)
	sleep := firstSleep
	for i := 0; ; i++ {
		if phase.Load() >= s.phase {
			if i > yields {
				s.waiting.end()
			}
			return nil
		}
		if i == 0 {
			s.keepApart(r)
		}
		if i < yields {
			s.board.giveWay(i)
			continue
		}
		if i == yields {
			s.waiting.begin(s.members[r])
		}
		if err := s.failed(ctx, r); err != nil {
			// It may have come this far and then ended.
			if phase.Load() >= s.phase {
				return nil
			}
			return err
		}
		time.Sleep(sleep)
		sleep = min(sleep*3/2, lastSleep)
	}
}

// watch is how long a core must have idled for a rank to move to it.
const watch = 4 * sched.Tick

// keepApart looks for a core of its own if this rank shares one with a rank that it waits
// for. The system may let two such ranks stay together, also beside a core that idles, for
// as long as they give way to each other: they never sleep, and to its eyes both have much
// in their core's cache. A core that is busy is worse than a shared one: where one of the
// ranks waits for a stranger, both do. Of two ranks the higher moves, or they would meet
// again.
func (s *shared) keepApart(r int) {
	if s.board.looks() == 0 {
		return // there is no core for each
	}
	core := sched.Core()
	s.board.slot(s.rank).core.Store(int32(core) + 1)
	s.together = core != sched.Nowhere && s.board.slot(r).core.Load() == int32(core)+1
	if !s.together || s.rank < r {
		return
	}
	now := time.Now()
	passed := now.Sub(s.seen)
	if passed < watch {
		return
	}
	idle := sched.Idle()
	if passed < 2*watch { // else it was of another time
		if to := rested(s.idle, idle, passed); to != sched.Nowhere && sched.Move(to) {
			s.together = false
		}
	}
	s.idle, s.seen = idle, now
}

// rested is a core that has idled for all the time between two looks at all.
func rested(before, after []int64, passed time.Duration) int {
	for core := range min(len(before), len(after)) {
		// Both counts are rounded down.
		if before[core] >= 0 && after[core]-before[core] >= int64(passed/sched.Tick)-1 {
			return core
		}
	}
	return sched.Nowhere
}

// failed is why it is no use to wait for a rank any longer.
func (s *shared) failed(ctx context.Context, r int) error {
	select {
	case <-s.ended:
		return &mesh.PeerError{Peer: s.world.rank, Err: errClosed}
	case <-s.lookout.diverged:
		return s.lookout.found
	default:
	}
	if err := s.mesh.Lost(s.members); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return &mesh.PeerError{Peer: s.members[r], Err: context.Cause(ctx)}
	}
	now := time.Now()
	if s.trouble.IsZero() {
		s.trouble = now.Add(s.limit + s.slack)
	} else if now.After(s.trouble) {
		return &mesh.PeerError{Peer: s.members[r], Err: silence(s.limit)}
	}
	return nil
}
