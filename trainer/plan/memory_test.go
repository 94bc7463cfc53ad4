package plan

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// TestStateIsZeROs compares with figure 1 of Rajbhandari et al. (SC 2020), for float32.
func TestStateIsZeROs(t *testing.T) {
	for _, c := range []struct {
		name   string
		e      Element
		params float64
		ranks  int
		gb     [4]float64 // ddp, zero1, zero2, zero3
	}{
		{"Adam", Elements(2), 7.5e9, 64, [4]float64{120, 60.9375, 31.40625, 1.875}},
		{"Adam on few ranks", Elements(2), 1e9, 4, [4]float64{16, 10, 7, 4}},
		{"momentum", Elements(1), 1e9, 2, [4]float64{12, 10, 8, 6}},
		{"plain", Elements(0), 1e9, 2, [4]float64{8, 8, 6, 4}},
		{"one rank", Elements(2), 1e9, 1, [4]float64{16, 16, 16, 16}},
	} {
		for _, s := range ddp.Strategies() {
			if got := c.e.state(s, c.params, c.ranks).State() / 1e9; math.Abs(got-c.gb[s]) > 1e-9 {
				t.Errorf("%s, %s: %.6f GB of state, want %.6f", c.name, s, got, c.gb[s])
			}
		}
	}
}

func smallGPT(t testing.TB) Work {
	t.Helper()
	o := nn.GPTOptions{Vocabulary: 5000, Context: 64, Layers: 6, Heads: 4, Width: 512}
	return Count(gpt(t, o), Sample{Tokens: 64, Outputs: o.Vocabulary, Classes: true}, 4, device.FP32, false)
}

// TestMemoryNeverGrowsWithRanksOrStages checks that more ranks never need more memory per rank,
// except for padding, and that each ZeRO stage needs less for its state.
func TestMemoryNeverGrowsWithRanksOrStages(t *testing.T) {
	w := smallGPT(t)
	for _, moments := range []int{1, 2} {
		e := Elements(float64(moments))
		before := math.Inf(1)
		for _, s := range ddp.Strategies() {
			last := math.Inf(1)
			for ranks := 2; ranks <= 16384; ranks *= 2 {
				m := w.Memory(s, e, ranks, Program{})
				// Two buckets are in memory at a time, each padded to a cache line per rank.
				filling := 2 * 16 * float64(ranks) * (e.Weight + e.Grad)
				if m.Total() > last+filling {
					t.Errorf("%s: %d ranks need %.0f bytes each, half of them %.0f", s, ranks, m.Total(), last)
				}
				last = m.Total()
			}
			if state := e.state(s, float64(w.NumParams()), 16).State(); state >= before {
				t.Errorf("%s: %.0f bytes of state, the strategy before it %.0f", s, state, before)
			} else {
				before = state
			}
		}
	}
}

// TestMemoryOfCopies checks that the memory for an async checkpoint is the size of its contents:
// all of it, or a rank's part.
func TestMemoryOfCopies(t *testing.T) {
	w, e := smallGPT(t), Elements(2)
	for _, s := range ddp.Strategies() {
		want := 12 * float64(w.NumParams())
		if s != ddp.DDP {
			want /= 4
		}
		without, with := w.Memory(s, e, 4, Program{}), w.Memory(s, e, 4, Program{Copies: true})
		if got := with.Total() - without.Total(); math.Abs(got-want) > 1 {
			t.Errorf("%s: %.0f bytes, want %.0f", s, got, want)
		}
	}
}

// recorder is a communicator of two ranks that records the sizes of reductions.
type recorder struct {
	ddp.HostCommunicator
	notCalled
	mu   sync.Mutex
	lens []int
}

// notCalled has the other methods of a communicator.
type notCalled struct{ ddp.Communicator }

func (*recorder) Rank() int { return 0 }

func (*recorder) Size() int { return 2 }

func (*recorder) Broadcast(context.Context, []byte, int) error { return nil }

func (r *recorder) AllReduce(_ context.Context, buf device.Tensor) (ddp.Work, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lens = append(r.lens, buf.Len())
	return nil, nil
}

// TestBucketsAreThoseOfDDP checks that the number and the sizes of buckets equal the trainer's.
func TestBucketsAreThoseOfDDP(t *testing.T) {
	cases := examples(t)
	o := nn.GPTOptions{Vocabulary: 5000, Context: 64, Layers: 6, Heads: 4, Width: 512}
	const own = "buckets of their own sizes"
	cases["several buckets"] = example{gpt(t, o), Sample{Tokens: 64, Outputs: 5000, Classes: true}, 1}
	cases[own] = cases["several buckets"]
	for name, e := range cases {
		w := Count(e.model, e.sample, e.batch, device.FP32, false)
		var got []int
		if name == own {
			w.FirstBucket, w.Bucket = 64<<10, 3<<20
		}
		for _, b := range w.buckets(4, 2) {
			got = append(got, b.elements)
		}
		comm := &recorder{}
		r := ddp.New(comm, cpu.New(1), e.model.Params(), ddp.Options{FirstBucket: w.FirstBucket, Bucket: w.Bucket})
		r.Start(t.Context())
		for _, ready := range w.Backward {
			r.Ready(ready.Param)
		}
		if err := r.Finish(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, comm.lens) {
			t.Errorf("%s: buckets of %v elements, ddp has %v", name, got, comm.lens)
		}
		if least := map[string]int{"several buckets": 3, own: 12}[name]; len(got) < least {
			t.Errorf("only %d buckets", len(got))
		}
	}
}

// TestFindGPU checks the memory of GPUs by name, with the size in the name first.
func TestFindGPU(t *testing.T) {
	for text, want := range map[string]float64{
		"A100 40 GB": 40, "A100": 40, "A100 40 GB (1536 nodes) or 80 GB (256)": 40, "A100 80 GB": 80, "A100 64 GB (custom)": 64,
		"H200 141 GB": 141, "GH200": 96, "H100 of a GH200, 96 GB": 96, "H100 64 GB (custom)": 64,
		"MI250X, 64 GB per GCD": 64, "RTX A5000 24 GB": 24, "B9000 1 GB": 0, "": 0,
	} {
		g, ok := FindGPU(text)
		if g.Memory != want*gibi || ok != (want > 0) {
			t.Errorf("%q: %+v, want %v GiB", text, g, want)
		}
	}
}
