package collective

import (
	"runtime"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/sched"
)

// TestRanksOfOneCoreMoveApart checks that the higher of two ranks on one core moves to an idle
// core, at limited intervals. No rank moves if the other rank's core is different or unknown, or
// if there are not enough cores.
func TestRanksOfOneCoreMoveApart(t *testing.T) {
	same := func(core int) int32 { return int32(core) + 1 }
	for name, tt := range map[string]struct {
		rank, other int
		shows       func(core int) int32 // core that the other rank publishes
		looks       int
		want        bool
	}{
		"together":  {1, 0, same, maxSpins, true},
		"the lower": {0, 1, same, maxSpins, false},
		"apart":     {1, 0, func(core int) int32 { return int32(core) + 2 }, maxSpins, false},
		"unknown":   {1, 0, func(int) int32 { return 0 }, maxSpins, false},
		"too many":  {1, 0, same, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			h := newHeap(2, func() {})
			h.spins = tt.looks
			s := &shared{members: []int{0, 1}, rank: tt.rank, board: h}
			// The scheduler may move this thread at any time, but not each time.
			for try := 1; ; try++ {
				h.slot(tt.other).core.Store(tt.shows(sched.Core()))
				s.moveToIdleCore(tt.other)
				if (s.idle != nil) == tt.want {
					break
				}
				if try == 20 {
					t.Fatalf("looked for a core: %v", !tt.want)
				}
			}
			if seen := s.idleSampled; tt.want {
				if s.moveToIdleCore(tt.other); s.idleSampled != seen && s.idleSampled.Sub(seen) < idleWindow {
					t.Errorf("looked again after %v", s.idleSampled.Sub(seen))
				}
			}
		})
	}
}

// TestFindIdleCore checks that a core counts as idle only if its idle time grew with the elapsed
// time.
func TestFindIdleCore(t *testing.T) {
	for name, tt := range map[string]struct {
		before, after []int64
		want          int
	}{
		"the second":       {[]int64{100, 200}, []int64{100, 204}, 1},
		"rounded":          {[]int64{100, 200}, []int64{102, 203}, 1},
		"none":             {[]int64{100, 200}, []int64{102, 202}, sched.NoCore},
		"one that was off": {[]int64{-1, 200}, []int64{500, 200}, sched.NoCore},
		"one that is off":  {[]int64{100, 200}, []int64{-1, 200}, sched.NoCore},
		"one more":         {[]int64{100}, []int64{100, 500}, sched.NoCore},
		"not known":        {nil, nil, sched.NoCore},
	} {
		if got := findIdleCore(tt.before, tt.after, 45*time.Millisecond); got != tt.want {
			t.Errorf("%s: core %d, want %d", name, got, tt.want)
		}
	}
}

// TestContinuingRankClearsItsCore checks that a rank clears its published core when it continues,
// because it may have moved.
func TestContinuingRankClearsItsCore(t *testing.T) {
	h := newHeap(1, func() {})
	s := &shared{members: []int{0}, board: h}
	h.slot(0).core.Store(3)
	if err := s.sync(t.Context()); err != nil || h.slot(0).core.Load() != 0 {
		t.Errorf("on core %d, %v", h.slot(0).core.Load(), err)
	}
}

// slowBoard is a board whose yields take a while.
type slowBoard struct {
	*heap
	takes  time.Duration
	yields int
}

func (b *slowBoard) yield(int) {
	b.yields++
	time.Sleep(b.takes)
}

// TestNoYieldsNextToABusyProcess checks that a rank does not yield for a while after a yield that
// gave the core to a busy process, and that it yields again later.
func TestNoYieldsNextToABusyProcess(t *testing.T) {
	b := &slowBoard{heap: newHeap(2, func() {})}
	s := &shared{members: []int{0, 1}, board: b}
	check := func(when string, want bool) {
		t.Helper()
		before := b.yields
		if got := s.yield(0); got != want || b.yields-before != map[bool]int{true: 1}[want] {
			t.Errorf("%s: yielded: %v, calls of the board: %d, want %v", when, got, b.yields-before, want)
		}
	}
	b.takes = 2 * slowYield
	check("at first", true)
	s.contendedUntil = s.contendedUntil.Add(time.Hour) // for a busy machine
	check("next to a busy process", false)
	s.contendedUntil = time.Now()
	check("later", true)
}
