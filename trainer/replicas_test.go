package trainer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

// flaky is a communicator that changes a bit of the gradients of one step.
type flaky struct {
	collective.Communicator
	step, at int
}

func (c *flaky) Do(ctx context.Context, call collective.Call) error {
	err := c.Communicator.Do(ctx, call)
	if call.Kind != collective.KindAllReduce || call.Type != element.Float32 {
		return err
	}
	if c.step++; c.step == c.at {
		element.View[float32](call.Recv)[0] += 1e-3
	}
	return err
}

func TestReplicaThatDriftsIsNamed(t *testing.T) {
	j, dir := job(t, strings.Replace(fmt.Sprintf(mlp, 2), "7 steps", "1000 steps", 1)), t.TempDir()
	_, _, errs := world(t, 3, j, dir, func(rank int, o *Options) {
		if rank == 1 {
			o.Comm = &flaky{Communicator: o.Comm, at: 5}
		}
	})
	const want = "after step 100 the weights of rank 1 differ from those of the other ranks"
	for rank, err := range errs {
		if err == nil || !strings.HasSuffix(err.Error(), want) { // ranks may hear it from each other first
			t.Errorf("rank %d: %v, want %s", rank, err, want)
		}
	}
	if s, _, err := checkpoint.Load(dir); err != nil || s.Manifest.Step != 0 {
		t.Errorf("newest checkpoint is of step %d, %v, want none since the first", s.Manifest.Step, err)
	}
}

// garbled is a communicator that changes what rank 0 sends when parts are gathered.
type garbled struct {
	collective.Communicator
	gathers, from int
}

func (c *garbled) Do(ctx context.Context, call collective.Call) error {
	err := c.Communicator.Do(ctx, call)
	if call.Kind == collective.KindAllGather {
		if c.gathers++; c.gathers >= c.from {
			call.Recv[0] ^= 1 // the lowest bit of the first number
		}
	}
	return err
}

// With ZeRO1 and ZeRO2 a rank that does not have the weights of those that update them
// is named. With ZeRO3 there are no replicas.
func TestReplicaThatIsNotGivenTheWeightsIsNamed(t *testing.T) {
	for _, strategy := range []jobs.Strategy{jobs.StrategyZeRO1, jobs.StrategyZeRO2} {
		j, dir := by(t, strategy, strings.Replace(fmt.Sprintf(mlp, 2), "7 steps", "1000 steps", 1)), t.TempDir()
		_, _, errs := world(t, 3, j, dir, func(rank int, o *Options) {
			if rank == 1 {
				o.Comm = &garbled{Communicator: o.Comm, from: 50}
			}
		})
		const want = "after step 100 the weights of rank 1 differ from those of the other ranks"
		for rank, err := range errs {
			if err == nil || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("%s, rank %d: %v, want %s", strategy, rank, err, want)
			}
		}
	}
}

func TestOutvoted(t *testing.T) {
	for _, c := range []struct {
		sums []float64
		want []int
	}{
		{[]float64{7}, nil},
		{[]float64{7, 7, 7}, nil},
		{[]float64{7, 8}, []int{1}},
		{[]float64{8, 7, 7}, []int{0}},
		{[]float64{7, 8, 9, 7}, []int{1, 2}},
	} {
		if got := outvoted(c.sums); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.sums, got, c.want)
		}
	}
	if got := ranks([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}); got != "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more" {
		t.Errorf("%q", got)
	}
}

// A rank that computes longer than the others is named, and so is how long ranks
// communicate. What rank 0 alone does between steps, as saving and telling, makes it no
// slow rank; and waiting in an evaluation is none in steps.
func TestSlowRankIsNamed(t *testing.T) {
	for _, strategy := range []jobs.Strategy{jobs.StrategyDDP, jobs.StrategyZeRO3} {
		t.Run(string(strategy), func(t *testing.T) {
			j := by(t, strategy, strings.Replace(fmt.Sprintf(gpt, 2, 0.0, text(t)), `log_every = "1 step"`, `log_every = "2 steps"`, 1))
			events, _, errs := world(t, 3, j, t.TempDir(), func(rank int, o *Options) {
				observe := o.Observe
				o.Observe = func(e Event) {
					if e.Kind == Saved {
						time.Sleep(300 * time.Millisecond)
					}
					observe(e)
				}
				if rank == 2 {
					o.Comm = &lagging{o.Comm}
				}
			})
			ok(t, errs)
			seen := 0
			for _, e := range events {
				if e.Kind != Trained {
					continue
				}
				seen++
				c := e.Communication
				if c == nil || c.Slowest != 2 || c.Ratio < metrics.StragglerRatio || c.Busy <= 0 || c.Hidden < 0 || c.Hidden > 1 ||
					len(c.Computing) != 3 || c.Computing[2] < 20*time.Millisecond || c.Computing[0] <= 0 || c.Computing[0] >= c.Computing[2] {
					t.Errorf("step %d: %+v", e.Step, c)
				} else if strings.Contains(e.String(), "rank 2 computes") != (seen >= metrics.StragglerIntervals) {
					t.Errorf("%s", e)
				}
			}
			if seen < 3 {
				t.Errorf("%d reports", seen)
			}
		})
	}
}

// lagging is the communicator of a rank that takes long to come to it. It is asked
// for its size in every step.
type lagging struct{ collective.Communicator }

func (c *lagging) Size() int {
	time.Sleep(20 * time.Millisecond) // much, beside what other processes take
	return c.Communicator.Size()
}
