package collective

import (
	"runtime"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/sched"
)

// A rank leaves the core that it shares with the one that it waits for, and puts off the
// next time longer while it finds no other; it stays where the other is elsewhere or not
// known to be anywhere, and where there are not enough cores.
func TestRanksOfOneCoreMoveApart(t *testing.T) {
	for name, tt := range map[string]struct {
		other  func(core int) int32 // what the other rank shows beside this one's core
		looks  int
		leaves bool
	}{
		"together": {func(core int) int32 { return int32(core) + 1 }, looks, true},
		"apart":    {func(core int) int32 { return int32(core) + 2 }, looks, false},
		"unknown":  {func(int) int32 { return 0 }, looks, false},
		"too many": {func(core int) int32 { return int32(core) + 1 }, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			h := newHeap(2, func() {})
			h.spins = tt.looks
			s := &shared{members: []int{0, 1}, board: h}
			// The system may move this thread at any time, but not each time.
			for try := 1; ; try++ {
				s.settled, s.stay = time.Time{}, lastStay
				h.slot(1).core.Store(tt.other(sched.Core()))
				began := time.Now()
				s.keepApart(1)
				left := !s.settled.IsZero()
				if left && s.settled.Before(began.Add(firstStay)) {
					t.Errorf("settled for %v", s.settled.Sub(began))
				}
				if left == tt.leaves {
					break
				}
				if try == 20 {
					t.Fatalf("left its core: %v", left)
				}
			}
			if tt.leaves && h.slot(0).core.Load() != 0 {
				t.Error("is still said to be on the core that it left")
			}
			if s.together && (!tt.leaves || s.stay == firstStay) {
				t.Errorf("said to be together with the other; stays for %v", s.stay)
			}
		})
	}
}

// Where a rank was is forgotten when it goes on: it may have moved.
func TestARankThatGoesOnIsNowhere(t *testing.T) {
	h := newHeap(1, func() {})
	s := &shared{members: []int{0}, board: h}
	h.slot(0).core.Store(3)
	if err := s.sync(t.Context()); err != nil || h.slot(0).core.Load() != 0 {
		t.Errorf("on core %d, %v", h.slot(0).core.Load(), err)
	}
}
