package gemm_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/gemm"
)

// BenchmarkFloat32 reports GFLOP/s on one thread, and on two if there are two. The
// shapes are rows x columns x terms: the three products of the layers of an MLP
// for several batches (NT forward, TN weight gradient, NN input gradient), and
// squares. Of several runs, the best is the least disturbed. Beside them is what
// BenchmarkPeak finds.
func BenchmarkFloat32(b *testing.B) {
	type shape struct {
		way     string
		m, n, k int
	}
	var shapes []shape
	for _, batch := range []int{32, 64, 128, 256} {
		for _, layer := range [][2]int{{784, 512}, {512, 512}, {784, 32}, {512, 10}} {
			in, out := layer[0], layer[1]
			shapes = append(shapes, shape{"NT", batch, out, in}, shape{"TN", out, in, batch}, shape{"NN", batch, in, out})
		}
	}
	for _, size := range []int{256, 512, 768, 1024} {
		shapes = append(shapes, shape{"NN", size, size, size}, shape{"NT", size, size, size}, shape{"TN", size, size, size})
	}
	for _, s := range shapes {
		for _, name := range gemm.Kernels() {
			for workers := 1; workers <= 2; workers++ {
				b.Run(fmt.Sprintf("%s/%s/%dx%dx%d/threads=%d", name, s.way, s.m, s.n, s.k, workers), func(b *testing.B) {
					p := product{m: s.m, n: s.n, k: s.k, transA: s.way == "TN", transB: s.way == "NT"}
					c, x, y := p.operands(1)
					ws := gemm.NewWorkspaceFor(name, workers)
					b.ReportAllocs()
					for b.Loop() {
						gemm.Float32(ws, c, x, y, false)
					}
					reportSpeed(b, s.m*s.n*s.k)
				})
			}
		}
	}
}

// BenchmarkPeak reports the limit of one core, see [gemm.Workspace.Peak].
func BenchmarkPeak(b *testing.B) {
	for _, name := range gemm.Kernels() {
		b.Run(name, func(b *testing.B) {
			best := 0.0
			for b.Loop() {
				best = max(best, gemm.NewWorkspaceFor(name, 1).Peak(10*time.Millisecond))
			}
			b.ReportMetric(best, "GFLOP/s")
		})
	}
}

func reportSpeed(b *testing.B, terms int) {
	b.ReportMetric(2*float64(terms)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOP/s")
}
