package nn

import (
	"fmt"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// BenchmarkStep measures a whole step on one thread: forward, loss, backward, and update. It
// reports the fastest of several runs, because it is the least disturbed.
func BenchmarkStep(b *testing.B) {
	gpt := kind{name: "gpt-4x256-4x128-65", samples: 8, tokens: 128, classes: 65, make: func(dropout float64) (Model, error) {
		return NewGPT(GPTOptions{Vocabulary: 65, Context: 128, Layers: 4, Heads: 4, Width: 256, Dropout: dropout})
	}}
	mlp := kind{name: "mlp-784-512-512-10", samples: 128, inputs: 784, classes: 10, make: func(dropout float64) (Model, error) {
		return NewMLP(784, MLPOptions{[]int{512, 512}, "relu", dropout}, 10)
	}}
	cnn := kind{name: "cnn-28x28-16-32-128", samples: 64, inputs: 784, classes: 10, make: func(dropout float64) (Model, error) {
		return NewCNN(1, 28, 28, CNNOptions{[]int{16, 32}, 3, MLPOptions{[]int{128}, "relu", dropout}}, 10)
	}}
	for _, k := range []kind{gpt, mlp, cnn} {
		for _, p := range []device.Precision{device.FP32, device.BF16} {
			b.Run(fmt.Sprintf("%s/batch%d/%s", k.name, k.samples, [...]string{"fp32", "bf16"}[p]), func(b *testing.B) {
				e := k.start(b, cpu.New(1), 0, p)
				u, batch, pass := newUpdates(e.device, e.model.Params()), e.every(0, 1), Pass{Train: true, Weight: 1}
				best := time.Duration(1 << 62)
				for b.Loop() {
					begin := time.Now()
					e.step(batch, pass)
					if k.tokens > 0 {
						u.adamW(adamWOptions{LR: 1e-3, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, MaxNorm: 1})
					} else {
						u.sgd(device.Factors{Rate: -0.01, Beta1: 0.9})
					}
					best = min(best, time.Since(begin))
				}
				b.ReportMetric(best.Seconds()*1e3, "best-ms")
			})
		}
	}
}
