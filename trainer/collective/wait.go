package collective

import (
	"context"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/mesh"
	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/sched"
)

// sync waits until all ranks have called it as often as this rank.
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

// A rank waits in three stages. First it spins, about as long as a rank that is almost done may
// take. It spins for a shorter time after unsuccessful attempts, but never less than a small
// reduction takes two ranks with a core each; otherwise they would never return to spinning. Then
// it yields the core. Then it sleeps, for growing intervals. It does not spin for a rank that needs
// this very core.
const (
	looks      = 20_000 // about 10 us
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
			s.keepApart(r) // the other rank has yielded, maybe to this one
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
			// The rank may have reached this phase and then exited.
			if phase.Load() >= s.phase {
				return nil
			}
			return err
		}
		time.Sleep(sleep)
		sleep = min(sleep*3/2, lastSleep)
	}
}

// watch is how long a core must be idle before a rank moves to it.
const watch = 4 * sched.Tick

// keepApart moves this rank to an idle core if it shares one with a rank that it waits for. The
// scheduler may keep two such ranks on one core, even if another core is idle, for as long as they
// yield to each other: they never sleep, and both appear to have a hot cache there. A busy core is
// worse than a shared one: if one rank waits for a foreign process, both wait. Of two ranks, the
// higher one moves; otherwise both could move to the same core.
func (s *shared) keepApart(r int) {
	if s.board.looks() == 0 {
		return // the ranks do not have a core each
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
	if passed < 2*watch { // otherwise the earlier sample is too old
		if to := rested(s.idle, idle, passed); to != sched.Nowhere && sched.Move(to) {
			s.together = false
		}
	}
	s.idle, s.seen = idle, now
}

// rested returns a core that was idle for the whole time between two samples.
func rested(before, after []int64, passed time.Duration) int {
	for core := range min(len(before), len(after)) {
		// Both counts are rounded down.
		if before[core] >= 0 && after[core]-before[core] >= int64(passed/sched.Tick)-1 {
			return core
		}
	}
	return sched.Nowhere
}

// failed returns the reason why waiting for a rank cannot succeed, or nil.
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
