package trainer

import (
	"sync"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
)

// fixedTimes is the communication of each step.
type fixedTimes ddp.Times

func (f fixedTimes) TakeTimes() ddp.Times { return ddp.Times(f) }

// TestMonitorComparesRanks checks the report of an interval: each rank's times, and the rates of all.
func TestMonitorComparesRanks(t *testing.T) {
	const ranks, steps = 3, 2
	comms := collective.Local(ranks, time.Minute)
	events := make([]Event, ranks)
	var wg sync.WaitGroup
	for rank, c := range comms {
		wg.Go(func() {
			m := monitor{comm: c, steps: fixedTimes{Busy: 4 * time.Second, Exposed: -time.Duration(rank+1) * time.Hour}}
			m.begin()
			for step := range steps {
				m.beginStep()
				m.endStep(step+1, 50)
			}
			e := &events[rank]
			e.Step = steps
			if err := m.report(t.Context(), e, 10, 1000); err != nil {
				t.Error(err)
			}
			if m.interval.steps != 0 || m.interval.began.IsZero() {
				t.Errorf("after the report: %+v", m.interval)
			}
		})
	}
	wg.Wait()
	for rank, e := range events {
		c := e.Communication
		if c == nil || c.Busy != 4*time.Second || c.Hidden < 1 || c.Slowest != ranks-1 || len(c.Computing) != ranks {
			t.Fatalf("rank %d: %+v", rank, c)
		}
		for other, took := range c.Computing { // at least the time that was not exposed
			if took < time.Duration(other+1)*time.Hour || took > time.Duration(other+1)*time.Hour+30*time.Minute {
				t.Errorf("rank %d: rank %d computed for %v", rank, other, took)
			}
		}
		if !(e.SamplesPerSecond > 0) || e.TokensPerSecond != 10*e.SamplesPerSecond || e.Remaining <= 0 || c.Ratio < 1.2 {
			t.Errorf("rank %d: %+v", rank, e)
		}
	}
}

// TestStragglerLasts checks that a rank is reported as a straggler only if it is the slowest
// repeatedly and by a large margin: not if ranks take turns, steps are short, or computation is a
// small part of the time.
func TestStragglerLasts(t *testing.T) {
	const ms = time.Millisecond
	type interval struct {
		rank               int
		ratio              float64
		computing, elapsed time.Duration // of 10 steps
		want               bool
	}
	slowly := func(rank int, want bool) interval { return interval{rank, 2, 400 * ms, 500 * ms, want} }
	for name, intervals := range map[string][]interval{
		"one rank":        {slowly(1, false), slowly(1, false), slowly(1, true), slowly(1, true)},
		"rank 0":          {slowly(0, false), slowly(0, false), slowly(0, true)},
		"in turns":        {slowly(0, false), slowly(1, false), slowly(0, false), slowly(1, false)},
		"with a break":    {slowly(1, false), slowly(1, false), {1, 1.4, 400 * ms, 500 * ms, false}, slowly(1, false), slowly(1, false), slowly(1, true)},
		"short steps":     {{1, 2, 38 * ms, 50 * ms, false}, {1, 2, 38 * ms, 50 * ms, false}, {1, 2, 38 * ms, 50 * ms, false}},
		"mostly messages": {{1, 2, 90 * ms, 500 * ms, false}, {1, 2, 90 * ms, 500 * ms, false}, {1, 2, 90 * ms, 500 * ms, false}},
		"another is slow": {slowly(1, false), slowly(1, false), slowly(2, false), slowly(2, false), slowly(2, true)},
	} {
		var s straggler
		for i, v := range intervals {
			if got := s.update(&Communication{Slowest: v.rank, Ratio: v.ratio}, v.computing, v.elapsed, 10); got != v.want {
				t.Errorf("%s, interval %d: %v", name, i, got)
			}
		}
	}
}
