package trainer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/checkpointing"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

// flaky is a communicator that changes the gradients that a rank receives in one step.
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

// TestDivergentReplicaIsNamed checks that all ranks name the rank whose weights differ, and that
// no checkpoint is saved afterwards.
func TestDivergentReplicaIsNamed(t *testing.T) {
	j, dir := job(t, strings.Replace(fmt.Sprintf(mlp, 2), "7 steps", "1000 steps", 1)), t.TempDir()
	_, _, errs := world(t, 3, j, dir, func(rank int, o *Options) {
		if rank == 1 {
			o.Comm = &flaky{Communicator: o.Comm, at: 5}
		}
	})
	const want = "after step 100 the weights of rank 1 differ from those of the other ranks"
	for rank, err := range errs {
		if err == nil || !strings.HasSuffix(err.Error(), want) { // ranks may receive it from each other first
			t.Errorf("rank %d: %v, want %s", rank, err, want)
		}
	}
	if s, _, err := checkpoint.Load(t.Context(), dir); err != nil || s.Manifest.Step != 0 {
		t.Errorf("newest checkpoint is of step %d, %v, want none since the first", s.Manifest.Step, err)
	}
}

// TestDivergenceReachesNoCheckpoint checks that ranks detect a fault before the next save, so that
// it reaches no checkpoint. After a restart, the run ends with the values of an undisturbed run.
// With ZeRO the fault lasts, because a rank receives the weights again in every step.
func TestDivergenceReachesNoCheckpoint(t *testing.T) {
	for _, every := range []string{"7 steps", "20 steps"} {
		for _, async := range []bool{false, true} {
			for _, strategy := range []jobs.Strategy{jobs.StrategyDDP, jobs.StrategyZeRO1, jobs.StrategyZeRO2} {
				j := withStrategy(t, strategy, strings.NewReplacer("epochs = 3", "epochs = 2", "7 steps", every).Replace(fmt.Sprintf(mlp, 2))+fmt.Sprintf("async = %v\n", async))
				undisturbed := t.TempDir()
				_, whole, errs := world(t, 3, j, undisturbed, nil)
				ok(t, errs)
				_, want := digests(t, undisturbed)
				for _, faulty := range []int{0, 1} {
					t.Run(fmt.Sprintf("%s async %v %s rank %d", every, async, strategy, faulty), func(t *testing.T) {
						dir := t.TempDir()
						_, _, errs := world(t, 3, j, dir, func(rank int, o *Options) {
							switch {
							case rank == faulty && strategy == jobs.StrategyDDP:
								o.Comm = &flaky{Communicator: o.Comm, at: 33}
							case rank == faulty:
								o.Comm = &garbled{Communicator: o.Comm, from: 33}
							}
						})
						if errs[faulty] == nil || !strings.Contains(errs[faulty].Error(), fmt.Sprintf("the weights of rank %d differ", faulty)) {
							t.Fatalf("rank %d: %v", faulty, errs[faulty])
						}
						before, _ := digests(t, dir)
						events, result, errs := world(t, 3, j, dir, nil)
						ok(t, errs)
						if events[0].Step != before || result.Step != whole.Step {
							t.Errorf("resumed after step %d, ended at %d, want %d and %d", events[0].Step, result.Step, before, whole.Step)
						}
						if _, got := digests(t, dir); got != want {
							t.Errorf("different values from those of an undisturbed run, after a resume at step %d", before)
						}
					})
				}
			}
		}
	}
}

// TestDivergenceIsFoundAtTheEnd checks that ranks compare replicas before their last save if the
// run is shorter than the comparison interval or is stopped.
func TestDivergenceIsFoundAtTheEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		epochs string
		change func(int, *Options)
	}{
		"end of the run": {"epochs = 2", func(int, *Options) {}},
		"stop":           {"epochs = 3", stopAfter(Trained, 50)},
	} {
		t.Run(name, func(t *testing.T) {
			j, dir := job(t, strings.NewReplacer("epochs = 3", tt.epochs, "7 steps", "1000 steps").Replace(fmt.Sprintf(mlp, 2))), t.TempDir()
			_, _, errs := world(t, 3, j, dir, func(rank int, o *Options) {
				tt.change(rank, o)
				if rank == 2 {
					o.Comm = &flaky{Communicator: o.Comm, at: 5}
				}
			})
			for rank, err := range errs {
				if err == nil || !strings.Contains(err.Error(), "the weights of rank 2 differ") {
					t.Errorf("rank %d: %v", rank, err)
				}
			}
			if step, _ := digests(t, dir); step != 0 {
				t.Errorf("the newest checkpoint is of step %d, want 0", step)
			}
		})
	}
}

// TestOptimizerStateThatDiffersIsNotSaved checks that ranks with DDP compare the optimizer state
// also, because a checkpoint holds rank 0's. A learning rate of nearly 0 keeps the weights equal.
func TestOptimizerStateThatDiffersIsNotSaved(t *testing.T) {
	j, dir := job(t, strings.NewReplacer("lr = 0.1", "lr = 1e-30").Replace(fmt.Sprintf(mlp, 2))), t.TempDir()
	_, _, errs := world(t, 3, j, dir, func(rank int, o *Options) {
		if rank == 0 {
			o.Comm = &flaky{Communicator: o.Comm, at: 5}
		}
	})
	for rank, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "after step 7 the optimizer state of rank 0 differ") {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	if step, _ := digests(t, dir); step != 0 {
		t.Errorf("the newest checkpoint is of step %d, want 0", step)
	}
}

// TestManifestRecordsReplicaComparison checks that a manifest records whether ranks compared the
// state that it describes.
func TestManifestRecordsReplicaComparison(t *testing.T) {
	for _, tt := range []struct {
		ranks    int
		strategy jobs.Strategy
		want     checkpoint.Replicas
	}{
		{2, jobs.StrategyDDP, checkpoint.ReplicasCompared},
		{2, jobs.StrategyZeRO1, checkpoint.ReplicasCompared},
		{2, jobs.StrategyZeRO3, checkpoint.ReplicasNone},
		{1, jobs.StrategyDDP, checkpoint.ReplicasNone},
	} {
		dir := t.TempDir()
		_, _, errs := world(t, tt.ranks, withStrategy(t, tt.strategy, strings.Replace(fmt.Sprintf(mlp, 20), "epochs = 3", "epochs = 1", 1)), dir, nil)
		ok(t, errs)
		entries, err := checkpoint.List(dir)
		if err != nil || len(entries) < 2 {
			t.Fatal(entries, err)
		}
		for _, e := range entries {
			if e.Err != nil || e.Manifest.Replicas != tt.want {
				t.Errorf("%d ranks, %s, step %d: %+v, want %q", tt.ranks, tt.strategy, e.Step, e, tt.want)
			}
		}
	}
}

// TestTieBlamesNoRank checks that the error names both of two ranks that differ. The faulty one
// cannot be identified.
func TestTieBlamesNoRank(t *testing.T) {
	for faulty := range 2 {
		_, _, errs := world(t, 2, job(t, fmt.Sprintf(mlp, 2)), t.TempDir(), func(rank int, o *Options) {
			if rank == faulty {
				o.Comm = &flaky{Communicator: o.Comm, at: 5}
			}
		})
		for rank, err := range errs {
			var found checkpointing.ReplicasError
			if !errors.As(err, &found) || !slices.Equal(found.Suspects(), []int{0, 1}) {
				t.Fatalf("fault on rank %d, rank %d says: %v", faulty, rank, err)
			}
			if text := err.Error(); !strings.Contains(text, "rank 0 and rank 1 differ") || !strings.Contains(found.Hint(), "a tie does not show which") {
				t.Errorf("%s; %s", text, found.Hint())
			}
		}
	}
}

// garbled is a communicator that changes what a rank receives from rank 0 when shards are gathered.
type garbled struct {
	collective.Communicator
	gathers, from int
}

func (c *garbled) Do(ctx context.Context, call collective.Call) error {
	err := c.Communicator.Do(ctx, call)
	if call.Kind == collective.KindAllGather && call.Type == element.Float32 { // not the result of a save
		if c.gathers++; c.gathers >= c.from {
			call.Recv[0] ^= 1 // the lowest bit of the first element
		}
	}
	return err
}

// TestStaleReplicaIsNamed checks for ZeRO1 and ZeRO2 that ranks name the rank whose weights differ
// from the weights of the ranks that update them. ZeRO3 has no replicas.
func TestStaleReplicaIsNamed(t *testing.T) {
	for _, strategy := range []jobs.Strategy{jobs.StrategyZeRO1, jobs.StrategyZeRO2} {
		j, dir := withStrategy(t, strategy, strings.Replace(fmt.Sprintf(mlp, 2), "7 steps", "1000 steps", 1)), t.TempDir()
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

// TestSlowRankIsNamed checks that a rank that computes longer than the others is reported as the
// slowest. Saves and reports of rank 0 between steps do not count as computation.
func TestSlowRankIsNamed(t *testing.T) {
	for _, strategy := range []jobs.Strategy{jobs.StrategyDDP, jobs.StrategyZeRO3} {
		t.Run(string(strategy), func(t *testing.T) {
			// Computation takes no time in the bubble, so a busy machine makes no difference.
			synctest.Test(t, func(t *testing.T) {
				j := withStrategy(t, strategy, strings.Replace(fmt.Sprintf(gpt, 2, 0.0, text(t)), `log_every = "1 step"`, `log_every = "2 steps"`, 1))
				events, _, errs := world(t, 3, j, t.TempDir(), func(rank int, o *Options) {
					observe := o.Observe
					o.Observe = func(e Event) {
						if e.Kind == Saved {
							time.Sleep(300 * time.Millisecond)
						}
						observe(e)
					}
					o.Comm = &lagging{o.Comm, []time.Duration{time.Millisecond, time.Millisecond, 100 * time.Millisecond}[rank]}
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
						len(c.Computing) != 3 || c.Computing[2] < 100*time.Millisecond || c.Computing[0] <= 0 || c.Computing[0] >= c.Computing[2] {
						t.Errorf("step %d: %+v", e.Step, c)
					} else if strings.Contains(e.String(), "rank 2 computes") != (seen >= metrics.StragglerIntervals) {
						t.Errorf("%s", e)
					}
				}
				if seen < 3 {
					t.Errorf("%d reports", seen)
				}
			})
		})
	}
}

// lagging is the communicator of a rank that computes for some time in every step: it delays Size, which
// is called in every step.
type lagging struct {
	collective.Communicator
	delay time.Duration
}

func (c *lagging) Size() int {
	time.Sleep(c.delay)
	return c.Communicator.Size()
}
