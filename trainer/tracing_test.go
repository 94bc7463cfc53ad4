package trainer

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/trace"
)

// TestRecordedSteps checks for every strategy that a trace does not change the weights, and that
// it has every part of a step and the work between steps.
func TestRecordedSteps(t *testing.T) {
	const ranks, first, last = 2, 98, 103
	for _, strategy := range strategyNames {
		t.Run(string(strategy), func(t *testing.T) {
			var got [2]string
			var traced [ranks][]int
			recorders := [ranks]*trace.Recorder{trace.New(first, last), trace.New(first, last)}
			for i, record := range []bool{false, true} {
				dir := t.TempDir()
				j := withStrategy(t, strategy, strings.Replace(fmt.Sprintf(mlp, 2), "[checkpoint]", "[checkpoint]\nasync = true", 1))
				_, _, errs := world(t, ranks, j, dir, func(rank int, o *Options) {
					if !record {
						return
					}
					o.Trace = recorders[rank]
					o.Observe = func(e Event) {
						if e.Kind == Traced {
							traced[rank] = append(traced[rank], e.Step)
						}
					}
				})
				ok(t, errs)
				_, got[i] = digests(t, dir)
			}
			if got[0] != got[1] {
				t.Error("a run that is recorded trains other weights")
			}
			reduction, gathers := trace.Scatter, 1
			if strategy == "ddp" {
				reduction, gathers = trace.Reduce, 0
			}
			for rank, r := range recorders {
				if !slices.Equal(traced[rank], []int{last}) {
					t.Errorf("rank %d reports traces after %v", rank, traced[rank])
				}
				var file bytes.Buffer
				if err := r.Write(&file, trace.Rank{Rank: rank, Ranks: ranks}); err != nil {
					t.Fatal(err)
				}
				recording, err := trace.Read(&file)
				if err != nil || recording.Dropped > 0 {
					t.Fatal(recording, err)
				}
				count := map[trace.Kind]int{}
				for _, s := range recording.Spans {
					count[s.Kind]++
				}
				const steps = last - first + 1
				for _, kind := range []trace.Kind{trace.Step, trace.Input, trace.Forward, trace.Backward, trace.Finish, trace.Optimizer} {
					if count[kind] != steps {
						t.Errorf("rank %d: %d spans of %v in %d steps", rank, count[kind], kind, steps)
					}
				}
				if count[reduction] < steps || count[trace.Gather] < gathers*steps || gathers == 0 && count[trace.Gather] > 0 {
					t.Errorf("rank %d: %d of %v, %d of %v", rank, count[reduction], reduction, count[trace.Gather], trace.Gather)
				}
				if count[trace.Save] == 0 || count[trace.Report] == 0 || (count[trace.Compare] > 0) != (strategy != "zero3") {
					t.Errorf("rank %d: between steps %v", rank, count)
				}
				if saves := count[trace.AsyncSave]; (saves > 0) != (rank == 0 || strategy != "ddp") {
					t.Errorf("rank %d: %d saves in the background", rank, saves)
				}
			}
		})
	}
}
