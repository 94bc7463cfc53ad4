package plan

import (
	"math"
	"runtime"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// example is a model with a batch.
type example struct {
	model  nn.Model
	sample Sample
	batch  int
}

func must(t testing.TB, m nn.Model, err error) nn.Model {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func gpt(t testing.TB, o nn.GPTOptions) nn.Model {
	t.Helper()
	m, err := nn.NewGPT(o)
	return must(t, m, err)
}

func mlp(t testing.TB, in int, hidden []int, out int) nn.Model {
	t.Helper()
	m, err := nn.NewMLP(in, nn.MLPOptions{Hidden: hidden, Activation: "relu"}, out)
	return must(t, m, err)
}

func cnn(t testing.TB) nn.Model {
	t.Helper()
	m, err := nn.NewCNN(1, 28, 28, nn.CNNOptions{Channels: []int{32, 64}, Kernel: 3, Dense: nn.MLPOptions{Hidden: []int{128}, Activation: "relu"}}, 10)
	return must(t, m, err)
}

func examples(t testing.TB) map[string]example {
	linear, err := nn.NewLinear(2000, 3)
	must(t, linear, err)
	images := Sample{Inputs: 784, Outputs: 10, Classes: true}
	return map[string]example{
		"linear": {linear, Sample{Inputs: 2000, Outputs: 3}, 4000},
		"mlp":    {mlp(t, 784, []int{512, 512}, 10), images, 2048},
		"cnn":    {cnn(t), images, 256},
		"gpt": {
			gpt(t, nn.GPTOptions{Vocabulary: 65, Context: 128, Layers: 4, Heads: 4, Width: 256, Dropout: .1}),
			Sample{Tokens: 128, Outputs: 65, Classes: true}, 16,
		},
	}
}

// TestCountsMatchModels checks that the counted parameters match the model's, and that each
// gradient becomes ready once.
func TestCountsMatchModels(t *testing.T) {
	for name, e := range examples(t) {
		w := Count(e.model, e.sample, e.batch, device.FP32, false)
		want, seen := 0, map[int]bool{}
		for i, p := range e.model.Params() {
			want += p.Len()
			if w.Params[i] != p.Len() || p.Data.Len() != 0 || p.Grad.Len() != 0 {
				t.Errorf("%s: parameter %d has %d elements, counted %d", name, i, p.Len(), w.Params[i])
			}
		}
		sum := 0
		for _, g := range w.Groups {
			sum += g.Params
		}
		if w.NumParams() != want || sum != want {
			t.Errorf("%s: %d parameters, %d in groups %v, want %d", name, w.NumParams(), sum, w.Groups, want)
		}
		for _, r := range w.Backward {
			seen[r.Param] = true
		}
		if len(w.Backward) != len(w.Params) || len(seen) != len(w.Params) {
			t.Errorf("%s: %d gradients of %d become ready, %d of them different", name, len(w.Backward), len(w.Params), len(seen))
		}
	}
}

// TestFLOPFormulas compares the counted operations with the usual formulas.
func TestFLOPFormulas(t *testing.T) {
	for name, c := range map[string]struct {
		example
		want, tolerance float64
	}{
		// 2*B*in*out for outputs, weights, and, except in the first layer, inputs.
		"mlp": {example{mlp(t, 784, []int{512, 512}, 10), Sample{Inputs: 784, Outputs: 10, Classes: true}, 128},
			2 * 128 * (2*784*512 + 3*512*512 + 3*512*10), 0},
		// The first convolution: 28*28*32*9; the second: 14*14*64*288; then two layers.
		"cnn": {example{cnn(t), Sample{Inputs: 784, Outputs: 10, Classes: true}, 5},
			2 * 5 * (2*28*28*32*9 + 3*14*14*64*288 + 3*64*7*7*128 + 3*128*10), 0},
		// 6N + 12*L*C*T per token, N without the position embedding; biases are in no matmul.
		"gpt2": {example{gpt(t, nn.GPTOptions{Vocabulary: 50257, Context: 1024, Layers: 12, Heads: 12, Width: 768}), Sample{Tokens: 1024, Outputs: 50257, Classes: true}, 4},
			4096 * (6*(124439808-1024*768) + 12*12*768*1024), 0.002},
	} {
		got := Count(c.model, c.sample, c.batch, device.BF16, false).FLOP()
		if math.Abs(got/c.want-1) > c.tolerance {
			t.Errorf("%s: %.6g FLOP, want %.6g", name, got, c.want)
		}
	}
}

// TestActivationsAreWhatTheCPUAllocates checks that the counter equals the growth of the heap,
// except for workspaces of threads.
func TestActivationsAreWhatTheCPUAllocates(t *testing.T) {
	for name, e := range examples(t) {
		want := float64(Count(e.model, e.sample, e.batch, device.FP32, false).Activations)
		d := cpu.New(1)
		d.NewAttention(device.AttentionShape{Heads: 1, HeadSize: 64, MaxLength: 128}) // allocates the thread's workspace
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		e.model.Plan(nn.Plan{Device: d, Batch: e.batch, Train: true})
		runtime.ReadMemStats(&after)
		got := float64(after.TotalAlloc - before.TotalAlloc)
		t.Logf("%s: %.1f MiB allocated, %.1f counted", name, got/(1<<20), want/(1<<20))
		if got < want || got > 1.05*want+64*1024 {
			t.Errorf("%s: the device allocated %.0f bytes for what is counted as %.0f", name, got, want)
		}
		runtime.KeepAlive(e.model)
	}
}
