package collective

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/mesh"
	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/sched"
)

// sync waits until all ranks have called it as often as this rank.
func (s *shared) sync(ctx context.Context) error {
	s.phase++
	slot := s.board.slot(s.rank)
	if slot.core.Load() != 0 {
		slot.core.Store(0)
	}
	slot.phase.Store(s.phase)
	for r := range s.members {
		if err := s.await(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// A rank waits in three stages. First it spins, about as long as a rank that is almost done may
// take. After unsuccessful attempts it spins for a shorter time, but at least for the time in which
// two ranks with a core each finish a small reduction; otherwise such ranks would never spin
// successfully again. Then it yields the core. Then it sleeps, for growing intervals. It does not spin
// for a rank that needs this very core.
//
// A yield that takes longer than slowYield gave the core to a computation of this process, which is
// welcome, or to another process. Linux lets each busy process run for a whole time slice per yield,
// so many yields would stop this rank for long, while a process that spins or has slept continues
// soon. So after a yield to another process, the rank spins in place of yields for contendedTime.
const (
	maxSpins       = 20_000 // about 10 us
	maxSpinBackoff = 3
	yields         = 200
	spinsPerYield  = 1000
	slowYield      = time.Millisecond
	contendedTime  = 100 * time.Millisecond
	minSleep       = 20 * time.Microsecond
	maxSleep       = 500 * time.Microsecond
)

// await waits until rank r of the group has reached this rank's phase.
func (s *shared) await(ctx context.Context, r int) error {
	other := s.board.slot(r)
	phase := &other.phase
	if phase.Load() >= s.phase {
		if other.core.Load() != 0 {
			s.moveToIdleCore(r) // the other rank has yielded, maybe to this one
		}
		return nil
	}
	tries := s.board.spinCount() >> s.spinBackoff
	if s.sameCore {
		tries = 0
	}
	for range tries {
		if phase.Load() >= s.phase {
			s.spinBackoff = max(s.spinBackoff-1, 0)
			return nil
		}
	}
	s.spinBackoff = min(s.spinBackoff+1, maxSpinBackoff)
	sleep := minSleep
	for i := 0; ; i++ {
		if phase.Load() >= s.phase {
			if i > yields {
				s.waiting.end()
			}
			return nil
		}
		if i == 0 {
			s.moveToIdleCore(r)
		}
		if i < yields {
			s.yield(i, phase)
			continue
		}
		if i == yields {
			s.waiting.begin(s.members[r])
		}
		if err := s.checkWait(ctx, r); err != nil {
			// The rank may have reached this phase and then exited.
			if phase.Load() >= s.phase {
				s.waiting.end()
				return nil
			}
			return err
		}
		time.Sleep(sleep)
		sleep = min(sleep*3/2, maxSleep)
	}
}

// yield yields the core, for the nth time in one wait. If busy processes share the core, it only
// yields to goroutines, and spins for about as long as a yield takes.
func (s *shared) yield(nth int, phase *atomic.Uint64) {
	began := time.Now()
	if began.Before(s.contendedUntil) {
		s.board.yield(nth, false)
		for i := 0; i < spinsPerYield && phase.Load() < s.phase; i++ {
		}
		return
	}
	if nth == 0 {
		s.yieldsBegan, s.cpuTime = began, sched.CPUTime()
	}
	s.board.yield(nth, true)
	if now := time.Now(); now.Sub(began) > slowYield && sched.CPUTime()-s.cpuTime < now.Sub(s.yieldsBegan)/2 {
		s.contendedUntil = now.Add(contendedTime)
	}
}

// idleWindow is how long a core must be idle before a rank moves to it.
const idleWindow = 4 * sched.Tick

// moveToIdleCore moves this rank to an idle core if it shares one with a rank that it waits for.
// The scheduler may keep two such ranks on one core, even if another core is idle, for as long as
// they yield to each other: they never sleep, and both appear to have a hot cache there. A busy
// core is worse than a shared one: if one rank waits for a foreign process, both wait. The
// higher of two ranks moves; otherwise both could move to the same core.
func (s *shared) moveToIdleCore(r int) {
	if s.board.spinCount() == 0 {
		return // the ranks do not have a core each
	}
	core := sched.Core()
	s.board.slot(s.rank).core.Store(int32(core) + 1)
	s.sameCore = core != sched.NoCore && s.board.slot(r).core.Load() == int32(core)+1
	if !s.sameCore || s.rank < r {
		return
	}
	now := time.Now()
	passed := now.Sub(s.idleSampled)
	if passed < idleWindow {
		return
	}
	idle := sched.Idle()
	if passed < 2*idleWindow { // otherwise the earlier sample is too old
		if to := findIdleCore(s.idle, idle, passed); to != sched.NoCore && sched.Move(to) {
			s.sameCore = false
		}
	}
	s.idle, s.idleSampled = idle, now
}

// findIdleCore returns a core that was idle for the whole time between two samples.
func findIdleCore(before, after []int64, passed time.Duration) int {
	for core := range min(len(before), len(after)) {
		// Both counts are rounded down.
		if before[core] >= 0 && after[core]-before[core] >= int64(passed/sched.Tick)-1 {
			return core
		}
	}
	return sched.NoCore
}

// checkWait returns the reason why waiting for a rank cannot succeed, or nil.
func (s *shared) checkWait(ctx context.Context, r int) error {
	select {
	case <-s.ended:
		return &mesh.PeerError{Peer: s.world.rank, Err: errClosed}
	case <-s.detector.diverged:
		return s.detector.mismatch
	default:
	}
	if err := s.mesh.Lost(s.members); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return &mesh.PeerError{Peer: s.members[r], Err: context.Cause(ctx)}
	}
	now := time.Now()
	if s.deadline.IsZero() {
		s.deadline = now.Add(s.opTimeout + s.slack)
	} else if now.After(s.deadline) {
		return &mesh.PeerError{Peer: s.members[r], Err: timeoutError(s.opTimeout)}
	}
	return nil
}
