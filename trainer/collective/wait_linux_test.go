package collective

import (
	"runtime"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/mesh"
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
			var s *shared
			// The scheduler may move this thread at any time, but not each time.
			for try := 1; ; try++ {
				s = &shared{members: []int{0, 1}, rank: tt.rank, board: h}
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
	processes int // yields to processes
	during    func()
}

func (b *slowBoard) yield(_ int, processes bool) {
	if processes {
		b.processes++
		time.Sleep(2 * slowYield)
		b.during()
	}
}

// TestNoYieldsToBusyProcesses checks that a rank stops yielding to processes for a while after a
// yield in which another process used the core, but not if this process used it.
func TestNoYieldsToBusyProcesses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		during func(*shared)
		want   int
	}{
		{"another process computes", func(s *shared) { s.cpuTime = time.Hour }, 1},
		{"this process computes", func(s *shared) { s.cpuTime = -time.Hour }, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := &slowBoard{heap: newHeap(2, func() {})}
			s := &shared{members: []int{0, 1}, board: b}
			b.during = func() { tt.during(s) }
			for nth := range 3 {
				s.yield(nth, &b.slot(1).phase)
				if !s.contendedUntil.IsZero() {
					s.contendedUntil = time.Now().Add(time.Hour) // the machine may be slow
				}
			}
			if b.processes != tt.want {
				t.Errorf("yielded %d times to processes, want %d", b.processes, tt.want)
			}
		})
	}
}

// lostMesh is a mesh that calls during before it reports that a rank is lost.
type lostMesh struct {
	mesh.Mesh
	during func()
}

func (m lostMesh) Lost([]int) error {
	m.during()
	return &mesh.PeerError{Peer: 1}
}

// TestRankThatArrivesAndExits checks that a rank no longer waits for a rank that reached the phase and
// then exited: otherwise a query could name it.
func TestRankThatArrivesAndExits(t *testing.T) {
	h := newHeap(2, func() {})
	m := lostMesh{during: func() { h.slot(1).phase.Store(1) }}
	s := &shared{world: &world{mesh: m, waiting: new(waitedRank), detector: newDivergenceDetector(), ended: make(chan struct{})},
		members: []int{0, 1}, board: h}
	if err := s.sync(t.Context()); err != nil || s.waiting.rank.Load() != 0 {
		t.Errorf("waits for rank %d, %v", s.waiting.rank.Load()-1, err)
	}
}
