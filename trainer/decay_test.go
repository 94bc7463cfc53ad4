package trainer

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

// weightsOf returns the weights of the newest checkpoint.
func weightsOf(t *testing.T, dir string) map[string]safetensors.Tensor {
	t.Helper()
	s, _, err := checkpoint.Load(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	f := s.Files[checkpoint.ModelFile]
	tensors, _, err := safetensors.Read(f, f.Size())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]safetensors.Tensor{}
	for _, w := range tensors {
		out[w.Name] = w
	}
	return out
}

// TestOnlyMatricesOfGPTDecay compares the weights after one step with different weight decays: the
// step is otherwise the same, and AdamW applies weight decay to each element separately. So
// matrices must equal the result of decay = "all", and all other parameters the result without
// weight decay, whatever the strategy and the bounds of buckets and shards.
func TestOnlyMatricesOfGPTDecay(t *testing.T) {
	spec := strings.Replace(fmt.Sprintf(gpt, 32, 0.0, text(t)), "epochs = 2", "epochs = 1", 1)
	for _, kind := range []string{"adamw", "adam", "sgd"} {
		for _, ranks := range []int{1, 2, 3} {
			for _, strategy := range strategyNames {
				t.Run(fmt.Sprintf("%s on %d ranks by %s", kind, ranks, strategy), func(t *testing.T) {
					after := func(settings string) map[string]safetensors.Tensor {
						dir := t.TempDir()
						s := strings.Replace(spec, "kind = \"adamw\"", fmt.Sprintf("kind = %q\n%s", kind, settings), 1)
						_, result, errs := world(t, ranks, withStrategy(t, strategy, s), dir, smallBuckets)
						ok(t, errs)
						if result.Step != 1 {
							t.Fatalf("%d steps", result.Step)
						}
						return weightsOf(t, dir)
					}
					none, all := after("weight_decay = 0"), after("weight_decay = 0.5\ndecay = \"all\"")
					matrices, others, moved := 0, 0, 0
					for name, got := range after("weight_decay = 0.5") {
						want := none[name]
						if len(got.Shape) >= 2 {
							want = all[name]
							matrices++
						} else {
							others++
						}
						if !slices.Equal(got.Data, want.Data) {
							t.Errorf("%s %v has other values", name, got.Shape)
						}
						if !slices.Equal(none[name].Data, all[name].Data) {
							moved++
						}
					}
					if matrices != 10 || others != 18 || moved < matrices {
						t.Errorf("%d matrices, %d other parameters, %d of them change by weight decay", matrices, others, moved)
					}
				})
			}
		}
	}
}

// TestOlderRunOfGPTIsNotResumedWithOtherDecay resumes from a checkpoint whose manifest has no
// optimizer.decay, like manifests of versions without the key: a job with weight decay on matrices
// only is rejected.
func TestOlderRunOfGPTIsNotResumedWithOtherDecay(t *testing.T) {
	dir := t.TempDir()
	spec := fmt.Sprintf(gpt, 8, 0.1, text(t))
	stoppedRun(t, 1, withStrategy(t, jobs.StrategyDDP, strings.Replace(spec, "lr = 0.003", "lr = 0.003\ndecay = \"all\"", 1)), dir, 2)
	_, _, errs := world(t, 1, job(t, strings.Replace(spec, "lr = 0.003", "lr = 0.003\ndecay = \"matrices\"", 1)), dir, nil)
	if errs[0] == nil || !strings.Contains(errs[0].Error(), `train.optimizer.decay was "all" and is "matrices"`) {
		t.Fatalf("got %v, want an error that names train.optimizer.decay and both values", errs[0])
	}
	hint, ok := errs[0].(interface{ Hint() string })
	if !ok || !strings.Contains(hint.Hint(), "train.optimizer.decay") {
		t.Errorf("the hint of %v does not name the setting that resumes the run", errs[0])
	}
}

// TestOlderRunOfGPTResumesWithItsDecay resumes such a run twice with a job that does not set the
// key. It must compute the same as with decay = "all".
func TestOlderRunOfGPTResumesWithItsDecay(t *testing.T) {
	spec := fmt.Sprintf(gpt, 8, 0.1, text(t))
	all := strings.Replace(spec, "lr = 0.003", "lr = 0.003\ndecay = \"all\"", 1)
	for _, ranks := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d ranks", ranks), func(t *testing.T) {
			trained := func(resumed string, notes int) map[string]safetensors.Tensor {
				dir := t.TempDir()
				stoppedRun(t, ranks, withStrategy(t, jobs.StrategyDDP, all), dir, 2)
				noted := 0
				for _, more := range []int{3, 0} {
					j := withStrategy(t, jobs.StrategyDDP, resumed)
					events, _, errs := world(t, ranks, j, dir, func(rank int, o *Options) {
						smallBuckets(rank, o)
						stop, inner := make(chan struct{}), o.Observe
						o.Stop = stop
						o.Observe = func(e Event) {
							inner(e)
							if rank == 0 && e.Kind == Trained && e.Step == more {
								close(stop)
							}
						}
					})
					ok(t, errs)
					for _, e := range events {
						if e.Kind == DecayKept {
							noted++
						}
					}
					if j.Train.Optimizer.Decay == jobs.DecayAll != (resumed == all) {
						t.Error("the caller's job has changed")
					}
				}
				if noted != notes {
					t.Errorf("%d notes, want %d", noted, notes)
				}
				return weightsOf(t, dir)
			}
			want := trained(all, 0)
			for name, got := range trained(spec, 2) {
				if !slices.Equal(got.Data, want[name].Data) {
					t.Errorf("%s has other values than with decay = \"all\"", name)
				}
			}
		})
	}
}
