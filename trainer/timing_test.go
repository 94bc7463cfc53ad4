package trainer

import (
	"testing"
	"time"
)

// A rank is reported as a straggler only if it is the slowest repeatedly and by a large margin: not
// if ranks take turns, steps are short, or computation is a small part of the time.
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
