package optim

import (
	"math"
	"strings"
	"testing"
)

// TestScheduleBoundaries checks the rates at the start, the end, and far beyond the end of each
// schedule.
func TestScheduleBoundaries(t *testing.T) {
	must := func(s Schedule, err error) Schedule {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	cosine := must(Cosine(1, 0.1, 100))
	for _, c := range []struct {
		name string
		s    Schedule
		step int64
		want float64
	}{
		{"constant far out", must(Constant(0.5)), 1 << 40, 0.5},
		{"cosine at the start", cosine, 0, 1},
		{"cosine in the middle", cosine, 50, 0.55},
		{"cosine at the end", cosine, 100, 0.1},
		{"cosine stays at the floor", cosine, 150, 0.1},
		{"cosine far out", cosine, math.MaxInt64, 0.1},
		{"step before", must(StepDecay(1, 0.5, 10)), 9, 1},
		{"step at", must(StepDecay(1, 0.5, 10)), 10, 0.5},
		{"step far out", must(StepDecay(1, 0.5, 1)), math.MaxInt64, 0},
		{"warm-up from nothing", must(Warmup(0, 10, cosine)), 0, 0},
		{"warm-up in the middle", must(Warmup(0, 10, cosine)), 5, 0.5},
		{"warm-up is over", must(Warmup(0, 10, cosine)), 10, 1},
		{"the next schedule counts from there", must(Warmup(0, 10, cosine)), 60, 0.55},
		{"no warm-up", must(Warmup(0, 0, cosine)), 0, 1},
		{"two warm-ups", must(Warmup(0, 10, must(Warmup(0.5, 10, must(Constant(1)))))), 10, 0.5},
	} {
		if got := c.s(c.step); math.Abs(got-c.want) > 1e-15 {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestScheduleErrors checks that invalid schedules are rejected.
func TestScheduleErrors(t *testing.T) {
	of := func(_ Schedule, err error) error { return err }
	for _, c := range []struct {
		err  error
		want string
	}{
		{of(Constant(-1)), "learning rate is -1"},
		{of(Constant(math.NaN())), "learning rate is NaN"},
		{of(Cosine(1, 2, 10)), "floor is 2, want a number from 0 to the learning rate 1"},
		{of(Cosine(1, -1, 10)), "floor is -1"},
		{of(Cosine(1, 0, 0)), "steps is 0, want a number from 1"},
		{of(Cosine(1e300, 0, 1)), "learning rate is 1e+300"},
		{of(Constant(1e-46)), "learning rate is 1e-46"},
		{of(StepDecay(1, 0, 10)), "gamma is 0"},
		{of(StepDecay(1, 1.5, 10)), "gamma is 1.5"},
		{of(StepDecay(1, 0.1, 0)), "every is 0"},
		{of(StepDecay(-1, 0.1, 1)), "learning rate is -1"},
		{of(Warmup(-0.1, 10, nil)), "warm-up from -0.1"},
		{of(Warmup(1.1, 10, nil)), "warm-up from 1.1"},
		{of(Warmup(0, -1, nil)), "warm-up of -1 steps"},
	} {
		if c.err == nil || !strings.HasPrefix(c.err.Error(), c.want) {
			t.Errorf("error %v, want %s", c.err, c.want)
		}
	}
}
