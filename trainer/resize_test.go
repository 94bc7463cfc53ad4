package trainer

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/data"
)

// TestSamplesOnceWithAnotherBatch checks that a run that resumes in the middle of an epoch with a
// different batch, accumulate, and number of ranks uses each sample of the epoch once.
func TestSamplesOnceWithAnotherBatch(t *testing.T) {
	type part struct{ ranks, batch, accumulate int }
	for _, parts := range [][]part{
		{{4, 3, 1}, {4, 4, 1}},
		{{4, 3, 1}, {3, 4, 1}},
		{{2, 5, 2}, {5, 1, 1}, {2, 3, 4}},
		{{1, 8, 3}, {4, 2, 1}},
	} {
		taken, at := map[int]int{}, position{}
		for i, p := range parts {
			var samples int
			for rank := range p.ranks {
				j := job(t, strings.Replace(fmt.Sprintf(mlp, p.batch), "seed = 1", fmt.Sprintf("seed = 1\naccumulate = %d", p.accumulate), 1))
				dataset, _, err := data.Open(t.Context(), DataOptions(j.Train)) // 203 samples
				if err != nil {
					t.Fatal(err)
				}
				o := order{train: j.Train, data: dataset, rank: rank, size: p.ranks}
				steps := o.steps(at)
				if i < len(parts)-1 {
					steps = steps[:3]
				}
				samples = 0
				for _, s := range steps {
					samples += s.samples
					for _, batch := range s.batches {
						for _, n := range batch {
							taken[n]++
						}
					}
				}
			}
			at.Consumed += int64(samples)
		}
		last := parts[len(parts)-1].ranks
		twice := 0
		for n := range 203 {
			if twice += taken[n] - 1; taken[n] < 1 {
				t.Errorf("%v: sample %d is left out", parts, n)
			}
		}
		if twice >= last { // padding for the ranks of the last part
			t.Errorf("%v: %d samples are taken twice", parts, twice)
		}
	}
}

// TestResumesWithAnotherBatch checks that a run that resumes with other ranks and batches but the
// same samples per step has the same losses. A different number of samples per step is reported.
func TestResumesWithAnotherBatch(t *testing.T) {
	spec := func(batch, accumulate int) *jobs.Job { return job(t, join(fmt.Sprintf(mlp, batch), batch, accumulate)) }
	want, _, errs := world(t, 1, spec(12, 1), t.TempDir(), nil)
	ok(t, errs)
	for _, c := range []struct {
		ranks, batch, accumulate int
		resized                  string // the event, or ""
	}{
		{3, 4, 1, ""},
		{2, 3, 2, ""},
		{1, 12, 1, ""},
		{4, 4, 1, "samples per step changed from 12 to 16"},
		{4, 3, 2, "samples per step changed from 12 to 24"},
		{2, 3, 1, "samples per step changed from 12 to 6:"},
	} {
		dir := t.TempDir()
		stoppedRun(t, 4, spec(3, 1), dir, 5)
		events, _, errs := world(t, c.ranks, spec(c.batch, c.accumulate), dir, nil)
		ok(t, errs)
		if c.resized == "" {
			if got := losses(events); len(got) == 0 || slices.ContainsFunc(events, func(e Event) bool { return e.Kind == Resized }) {
				t.Errorf("%+v: events %v", c, events)
			}
			sameLosses(t, events, want[slices.IndexFunc(want, func(e Event) bool { return e.Kind == Trained && e.Step == 6 }):], 1e-6)
			continue
		}
		if e := events[1]; e.Kind != Resized || !strings.Contains(e.String(), c.resized) || strings.Contains(e.String(), "\n") {
			t.Errorf("%+v: %v, want %q", c, e, c.resized)
		}
	}
}
