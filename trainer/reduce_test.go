package trainer

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
)

// weigher is a communicator that counts the bytes of reduced gradients.
type weigher struct {
	collective.Communicator
	bytes *atomic.Int64
}

func (w weigher) Do(ctx context.Context, c collective.Call) error {
	if c.Type != element.Float64 && (c.Kind == collective.KindAllReduce || c.Kind == collective.KindReduceScatter) {
		w.bytes.Add(int64(len(c.Send)))
	}
	return w.Communicator.Do(ctx, c)
}

// TestCompressedGradients checks that ranks with reduce = "bf16" exchange half the bytes and train
// nearly the same as with fp32, with bit-identical weights for all strategies. A single rank does
// not round its gradients.
func TestCompressedGradients(t *testing.T) {
	for _, name := range []string{"mlp", "gpt"} {
		spec := models(t)[name](2)
		compressed := strings.Replace(spec, "epochs =", "reduce = \"bf16\"\nepochs =", 1)
		for _, ranks := range []int{2, 3} {
			run := func(spec string, strategy jobs.Strategy) (events []Event, weights string, bytes int64) {
				var sent atomic.Int64
				dir := t.TempDir()
				events, _, errs := world(t, ranks, withStrategy(t, strategy, spec), dir, func(rank int, o *Options) {
					smallBuckets(rank, o)
					o.Comm = weigher{o.Comm, &sent}
				})
				ok(t, errs)
				_, weights = digests(t, dir)
				return events, weights, sent.Load()
			}
			exact, other, whole := run(spec, jobs.StrategyDDP)
			want, weights, half := run(compressed, jobs.StrategyDDP)
			if 2*half != whole {
				t.Errorf("%s on %d ranks: %d bytes, %d with fp32", name, ranks, half, whole)
			}
			sameLosses(t, want, exact, 0.02)
			if weights == other {
				t.Errorf("%s on %d ranks: the same weights as with fp32", name, ranks)
			}
			for _, strategy := range strategyNames[1:] {
				events, got, _ := run(compressed, strategy)
				sameLosses(t, events, want, 0)
				if got != weights {
					t.Errorf("%s on %d ranks: %s has other weights than ddp", name, ranks, strategy)
				}
			}
		}
	}
	alone := job(t, fmt.Sprintf(mlp, 6))
	dir, same := t.TempDir(), t.TempDir()
	_, _, errs := world(t, 1, alone, dir, nil)
	ok(t, errs)
	alone.Train.Reduce = jobs.ReduceBF16
	_, _, errs = world(t, 1, alone, same, nil)
	ok(t, errs)
	if _, want := digests(t, dir); want != "" {
		if _, got := digests(t, same); got != want {
			t.Error("a rank alone rounds its gradients")
		}
	}
}
