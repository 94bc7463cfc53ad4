package gemm_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/gemm"
)

// BenchmarkProduct reports GFLOP/s on one thread. The names contain the type, the kernels, the
// orientation, and m x n x k: square matrices, and the three matrix multiplications of layers (NT
// for the forward pass, TN for the weight gradient, NN for the input gradient) of an MLP, of a GPT,
// of its large output layer, whose weights do not fit a cache, and of one attention head. The best
// of several runs is the least disturbed. BenchmarkPeak reports the limits.
func BenchmarkProduct(b *testing.B) {
	shapes := []product{
		{m: 128, n: 128, k: 64, transB: true, padA: 704, padB: 704},
		{m: 128, n: 64, k: 128, padB: 704, padC: 704},
		{m: 128, n: 64, k: 128, transA: true, padB: 704, padC: 704},
	}
	for _, s := range [][3]int{ // rows of the input, columns of the input, columns of the output
		{1024, 1024, 1024},
		{128, 784, 512}, {128, 512, 512}, {128, 512, 10},
		{1024, 256, 768}, {1024, 256, 256}, {1024, 256, 1024}, {1024, 1024, 256},
		{256, 768, 3072}, {256, 768, 50257},
	} {
		rows, in, out := s[0], s[1], s[2]
		shapes = append(shapes,
			product{m: rows, n: out, k: in, transB: true, from: bias},
			product{m: out, n: in, k: rows, transA: true},
			product{m: out, n: in, k: rows, transA: true, from: accumulate},
			product{m: rows, n: in, k: out})
	}
	for _, bf16 := range []bool{false, true} {
		for _, name := range gemm.Kernels() {
			if name == "portable" || name == "avx512" && !bf16 {
				continue // takes hours, or has the same kernels as avx512_bf16
			}
			for _, p := range shapes {
				p.bf16 = bf16
				b.Run(fmt.Sprintf("%s/%s", p.title(), name), func(b *testing.B) {
					c, x, y := p.operands(1)
					start, _ := p.from.start(c, 1)
					ws := gemm.NewWorkspaceFor(name, 1)
					best := time.Duration(1 << 62)
					b.ReportAllocs()
					for b.Loop() {
						begin := time.Now()
						p.multiply(ws, c, x, y, start)
						best = min(best, time.Since(begin))
					}
					b.ReportMetric(2*float64(p.m)*float64(p.n)*float64(p.k)/float64(best.Nanoseconds()), "GFLOP/s")
				})
			}
		}
	}
}

// title returns the name of a product in a benchmark.
func (p product) title() string {
	of, way := "float32", []byte("NN")
	if p.bf16 {
		of = "bfloat16"
	}
	if p.transA {
		way[0] = 'T'
	}
	if p.transB {
		way[1] = 'T'
	}
	add := ""
	if p.from == accumulate {
		add = "+="
	}
	return fmt.Sprintf("%s/%s%s/%dx%dx%d", of, way, add, p.m, p.n, p.k)
}

// BenchmarkWorkers reports GFLOP/s of two workers, which run on two threads if available.
func BenchmarkWorkers(b *testing.B) {
	for _, p := range []product{{m: 128, n: 512, k: 784, transB: true}, {m: 1024, n: 1024, k: 1024}, {m: 256, n: 768, k: 3072}} {
		for workers := 1; workers <= 2; workers++ {
			b.Run(fmt.Sprintf("%s/%d", p.title(), workers), func(b *testing.B) {
				c, x, y := p.operands(1)
				ws := gemm.NewWorkspace(workers)
				for b.Loop() {
					p.multiply(ws, c, x, y, gemm.Zero())
				}
				b.ReportMetric(2*float64(p.m*p.n*p.k)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOP/s")
			})
		}
	}
}

// BenchmarkPeak reports the limits of one core; see [gemm.Workspace.Peak].
func BenchmarkPeak(b *testing.B) {
	for _, ws := range workspaces() {
		for name, peak := range map[string]func(time.Duration) float64{"float32": ws.Peak, "bfloat16": ws.PeakBFloat16} {
			b.Run(name+"/"+ws.Kernel(), func(b *testing.B) {
				best := 0.0
				for b.Loop() {
					best = max(best, peak(10*time.Millisecond))
				}
				b.ReportMetric(best, "GFLOP/s")
			})
		}
	}
}
