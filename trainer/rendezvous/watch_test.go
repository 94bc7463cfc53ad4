package rendezvous

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// freeze makes a rank send no more messages, like SIGSTOP.
func freeze(t testing.TB, s *Session) (resume func()) {
	frozen := make(chan struct{})
	s.mu.Lock()
	last := s.progress
	s.progress = func() Progress { <-frozen; return last() }
	s.mu.Unlock()
	var once atomic.Bool
	resume = func() {
		if !once.Swap(true) {
			close(frozen)
		}
	}
	t.Cleanup(resume)
	return resume
}

func ended(t *testing.T, s *Session) error {
	t.Helper()
	select {
	case <-s.Context().Done():
		return context.Cause(s.Context())
	case <-time.After(time.Minute):
		t.Fatal("the attempt did not end")
		return nil
	}
}

// TestSilentRankIsNamed checks that the failure names a rank that does not send heartbeats.
func TestSilentRankIsNamed(t *testing.T) {
	t.Parallel()
	a := start(t, 4, func(o *ServerOptions) { o.Silence = 2 * time.Second })
	sessions := a.joinAll(t, 4)
	for _, s := range sessions {
		s.Report(func() Progress { return Progress{Step: 7, Phase: "training", Done: 9} })
	}
	freeze(t, sessions[1])
	err := ended(t, sessions[0])
	if want := "rank 1 on n2 has been silent for 2s at step 7 (training)"; !strings.Contains(err.Error(), want) || sessions[0].Stacks() {
		t.Errorf("rank 0 got %v, stacks %v; want %s", err, sessions[0].Stacks(), want)
	}
	f := a.Outcome().First
	if f == nil || f.Rank != 1 || f.Host != "n2" || f.State != Lost || f.Step != 7 || f.Phase != "training" || !strings.Contains(f.Hint(), "network.heartbeat_timeout") {
		t.Errorf("first failure %+v", f)
	}
}

// lockWhen locks the server as soon as a condition is met.
func (a attempt) lockWhen(met func() bool) {
	for a.mu.Lock(); !met(); a.mu.Lock() {
		a.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
}

// hasRecordedAll reports whether the server has recorded all connections, which it does shortly after
// it has sent the welcome.
func (a attempt) hasRecordedAll() bool { return !slices.Contains(a.members, nil) }

// TestAllSilentRanksAreNamed checks that the failure names all ranks that have been silent for too long.
func TestAllSilentRanksAreNamed(t *testing.T) {
	a := start(t, 4, nil)
	a.joinAll(t, 4)
	a.lockWhen(a.hasRecordedAll)
	defer a.mu.Unlock()
	a.o.Silence = 2 * time.Second
	for r := range a.ranks {
		a.ranks[r].Step, a.ranks[r].Phase, a.activities[r].hasSent = 7, "training", r%2 == 0
	}
	a.checkLocked(2 * time.Second)
	want := "rank 1 on n2; rank 3 on n4 have been silent for 2s at step 7 (training)"
	if f := a.first; f == nil || f.Rank != 1 || f.Host != "n2" || f.State != Lost || f.Reason != want {
		t.Errorf("got failure %+v, want %s", f, want)
	}
}

// TestSuspendedJobContinues checks that a job continues after all of its processes were stopped
// and resumed, and that a single stopped rank is still detected.
func TestSuspendedJobContinues(t *testing.T) {
	t.Parallel()
	a := start(t, 2, func(o *ServerOptions) { o.Silence, o.Stall = 2*time.Second, 4*time.Second })
	var resume []func()
	for _, s := range a.joinAll(t, 2) {
		s.Report(func() Progress { return Progress{Step: 1, Phase: "training", Done: 1} })
		resume = append(resume, freeze(t, s))
	}
	time.Sleep(5 * time.Second)
	select {
	case <-a.Failing():
		t.Fatalf("a suspended job was ended: %v", a.Outcome().First)
	default:
	}
	// A single rank that stays frozen is still detected afterwards.
	resume[0]()
	select {
	case <-a.Failing():
	case <-time.After(time.Minute):
		t.Fatal("the rank that did not go on was not noticed")
	}
	if f := a.Outcome().First; f.Rank != 1 || !strings.Contains(f.Reason, "silent") {
		t.Errorf("first failure %+v", f)
	}
}

// TestOwnSuspensionDoesNotCount checks that the silence of ranks does not include the time in
// which the server itself was stopped.
func TestOwnSuspensionDoesNotCount(t *testing.T) {
	a := start(t, 2, nil)
	a.joinAll(t, 2)
	s := a.Server
	a.lockWhen(a.hasRecordedAll)
	defer s.mu.Unlock()
	s.o.Silence = 10 * time.Second
	s.activities[0].hasSent, s.activities[1].hasSent = true, false
	s.checkLocked(2 * time.Second)
	if got := s.activities[1].silent; got != 2*time.Second || s.first != nil {
		t.Errorf("silent for %s, failure %v", got, s.first)
	}
	s.activities[0].hasSent, s.activities[1].hasSent = false, false
	s.checkLocked(time.Hour) // no rank sent a message
	if got := s.activities[1].silent; got != 2*time.Second || s.first != nil {
		t.Errorf("silent for %s, failure %v", got, s.first)
	}
}

// TestFrozenRankIsDetectedWhileStopping checks that a rank that freezes after a stop request,
// while the others leave, is detected, although no rank sends messages anymore.
func TestFrozenRankIsDetectedWhileStopping(t *testing.T) {
	a := start(t, 2, func(o *ServerOptions) { o.Silence = 2 * time.Second })
	sessions := a.joinAll(t, 2)
	a.Stop("stop")
	if err := sessions[0].Leave(3, nil); err != nil {
		t.Fatal(err)
	}
	s := a.Server
	a.lockWhen(func() bool { return s.members[1] != nil && s.left == 1 })
	defer s.mu.Unlock()
	s.activities[1].hasSent = false
	s.checkLocked(3 * time.Second)
	if s.first == nil || s.first.Rank != 1 || !strings.Contains(s.first.Reason, "silent") {
		t.Errorf("got failure %v, want that rank 1 has been silent", s.first)
	}
}

// TestStandstill checks that the failure names the rank that is behind if no rank makes progress,
// and that ranks print their stacks.
func TestStandstill(t *testing.T) {
	for _, tt := range []struct {
		name string
		done []uint64
		want string
		rank int
	}{
		{"one is behind", []uint64{5, 5, 4}, "rank 2 on n3 and all that wait for it have not made progress for 2s at step 4 (training)", 2},
		{"all alike", []uint64{4, 4, 4}, "no rank has made progress for 2s at step 4 (training)", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := start(t, 3, func(o *ServerOptions) { o.Stall = 2 * time.Second })
			sessions := a.joinAll(t, 3)
			for r, s := range sessions {
				s.Report(func() Progress { return Progress{Step: int(tt.done[r]), Phase: "training", Done: tt.done[r]} })
			}
			err := ended(t, sessions[0])
			if !strings.Contains(err.Error(), tt.want) || !sessions[0].Stacks() {
				t.Errorf("rank 0 got %v, stacks %v; want %s", err, sessions[0].Stacks(), tt.want)
			}
			if f := a.Outcome().First; f.Rank != tt.rank || f.State != Lost {
				t.Errorf("first failure %+v", f)
			}
		})
	}
}

// TestNoStandstill checks that ranks without a count, and ranks that still load, are not expected
// to make progress. One rank that makes progress is enough.
func TestNoStandstill(t *testing.T) {
	for name, second := range map[string]func(i uint64) Progress{
		"loading":  func(uint64) Progress { return Progress{Phase: "loading"} },
		"phases":   func(i uint64) Progress { return Progress{Phase: []string{"saving", "training"}[i%2], Done: 3} },
		"progress": func(i uint64) Progress { return Progress{Phase: "training", Done: i} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := start(t, 2, func(o *ServerOptions) { o.Stall = 2 * time.Second })
			sessions := a.joinAll(t, 2)
			sessions[0].Report(func() Progress { return Progress{Phase: "training", Done: 3} })
			var i atomic.Uint64
			sessions[1].Report(func() Progress { return second(i.Add(1)) })
			select {
			case <-a.Failing():
				t.Fatalf("ended: %v", a.Outcome().First)
			case <-time.After(5 * time.Second):
			}
		})
	}
}
