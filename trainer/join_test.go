package trainer

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs"
)

// join returns a job that uses each sample once, in micro-batches of the given size.
func join(spec string, batch, accumulate int) string {
	spec = strings.Replace(spec, "[train.data]", "[train.data]\nuneven = \"join\"", 1)
	return strings.Replace(spec, fmt.Sprintf("batch = %d", batch), fmt.Sprintf("batch = %d\naccumulate = %d", batch, accumulate), 1)
}

// TestJoinEqualsOneRank checks that every strategy trains and evaluates the same as one rank if
// samples do not divide evenly among ranks or batches. In the last step of an epoch, some ranks
// have fewer samples or batches than others, or none.
func TestJoinEqualsOneRank(t *testing.T) {
	path := text(t) // 20 samples to train on
	mlps := func(samples int) func(int) string {
		return func(batch int) string {
			return strings.Replace(fmt.Sprintf(mlp, batch), "samples = 203", fmt.Sprintf("samples = %d", samples), 1)
		}
	}
	gpts := func(batch int) string { return fmt.Sprintf(gpt, batch, 0.1, path) }
	for _, c := range []struct {
		name       string
		spec       func(batch int) string
		all        int // samples per full step
		accumulate int
		ranks      []int
	}{
		{"one rank has a sample", mlps(97), 24, 1, []int{2, 3, 4}},
		{"some have one more", mlps(107), 24, 1, []int{2, 3, 4}},
		{"fewer batches", mlps(107), 24, 2, []int{2, 3, 4}},
		{"fewer samples than ranks", mlps(3), 8, 1, []int{4}},
		{"gpt", gpts, 12, 1, []int{2, 3, 4}},
		{"gpt, fewer batches", gpts, 12, 3, []int{2, 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			want, one, errs := world(t, 1, job(t, join(c.spec(c.all), c.all, 1)), t.TempDir(), smallBuckets)
			ok(t, errs)
			for _, ranks := range c.ranks {
				for _, strategy := range strategyNames {
					batch := c.all / c.accumulate / ranks
					got, result, errs := world(t, ranks, withStrategy(t, strategy, join(c.spec(batch), batch, c.accumulate)), t.TempDir(), smallBuckets)
					ok(t, errs)
					if result.Step != one.Step {
						t.Fatalf("%s on %d ranks: %d steps, want %d", strategy, ranks, result.Step, one.Step)
					}
					sameLosses(t, got, want, 1e-6)
					for epoch, loss := range evaluated(want) {
						if v := evaluated(got)[epoch]; !(v >= loss*(1-1e-6) && v <= loss*(1+1e-6)) {
							t.Errorf("%s on %d ranks: a held-out loss of %v after epoch %d, want %v", strategy, ranks, v, epoch, loss)
						}
					}
				}
			}
		})
	}
}

// TestJoinResumes checks that a run that stops before the last steps of an epoch can resume with a
// different number of ranks. It uses each sample once, as with one rank.
func TestJoinResumes(t *testing.T) {
	// With 25 samples and 12 per step, the third step has one sample.
	spec := func(ranks int) *jobs.Job {
		text := strings.Replace(fmt.Sprintf(mlp, 12/ranks), "samples = 203", "samples = 25", 1)
		return job(t, strings.Replace(join(text, 12/ranks, 1), "epochs = 3", "epochs = 4", 1))
	}
	want, _, errs := world(t, 1, spec(1), t.TempDir(), nil)
	ok(t, errs)
	for _, before := range []int{1, 2, 3, 4} {
		for _, after := range []int{1, 2, 3, 4} {
			dir := t.TempDir()
			// After two steps, one sample of the first epoch is left, independent of the batch size
			// that the other number of ranks uses.
			stoppedRun(t, before, spec(before), dir, 2)
			second := spec(before)
			events, result, errs := world(t, after, second, dir, nil)
			ok(t, errs)
			if got := events[slices.IndexFunc(events, func(e Event) bool { return e.Kind == Trained })]; got.Step != 3 || !(got.Loss >= losses(want)[3]*(1-1e-6) && got.Loss <= losses(want)[3]*(1+1e-6)) {
				t.Errorf("%d to %d ranks: %v, want step 3 with a loss of %v", before, after, got, losses(want)[3])
			}
			if perEpoch := (25 + after*12/before - 1) / (after * 12 / before); result.Step != 3+3*perEpoch {
				t.Errorf("%d to %d ranks: %d steps, want 3 and 3 x %d", before, after, result.Step, perEpoch)
			}
		}
	}
}

// TestDropOfUnevenSamples checks that uneven = "drop" drops only samples that do not divide evenly
// among the ranks. The last, smaller batch stays.
func TestDropOfUnevenSamples(t *testing.T) {
	text := strings.Replace(fmt.Sprintf(mlp, 5), "[train.data]", "[train.data]\nuneven = \"drop\"", 1)
	_, result, errs := world(t, 2, job(t, strings.Replace(text, "samples = 203", "samples = 13", 1)), t.TempDir(), nil)
	ok(t, errs)
	if result.Step != 3*2 { // 6 samples each in batches of 5
		t.Errorf("%d steps, want 6", result.Step)
	}
}
