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
	phase := &s.board.slot(r).phase
	if phase.Load() >= s.phase {
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

// How long a rank stays that shares its core with another before it looks for one of its
// own, first and after looking in vain again and again.
const (
	firstStay = time.Millisecond
	lastStay  = 16 * time.Millisecond
)

// keepApart looks for a core of its own if this rank shares one with a rank that it waits
// for. The system lets two such ranks stay together, also beside a core that idles, for as
// long as they give way to each other: they never sleep, and to its eyes both have much in
// their core's cache. A core that is busy is worse than a shared one: where one of the
// ranks waits for a stranger, both do.
func (s *shared) keepApart(r int) {
	if s.board.looks() == 0 {
		return // there is no core for each
	}
	mine, core := &s.board.slot(s.rank).core, sched.Core()
	mine.Store(int32(core) + 1)
	s.together = core != sched.Nowhere && s.board.slot(r).core.Load() == int32(core)+1
	if !s.together || time.Now().Before(s.settled) {
		return
	}
	mine.Store(0) // or the other would leave, too
	sched.Doze()
	s.stay = min(max(2*s.stay, firstStay), lastStay)
	if sched.Core() != core {
		s.together, s.stay = false, firstStay
	}
	s.settled = time.Now().Add(s.stay)
}

// failed is why it is no use to wait for a rank any longer.
func (s *shared) failed(ctx context.Context, r int) error {
	select {
	case <-s.ended:
		return &mesh.PeerError{Peer: s.world.rank, Err: errClosed}
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
