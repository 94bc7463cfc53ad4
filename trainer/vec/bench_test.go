package vec_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/vec"
)

// BenchmarkCalls reports the best time per element of each function: for 1024 elements per slice,
// which fit the L1 cache, and for 16384, which fit the L2 cache. The best of several runs is the
// least disturbed.
func BenchmarkCalls(b *testing.B) {
	for _, c := range calls {
		for _, n := range []int{1024, 16384} {
			for _, name := range vec.Kernels() {
				b.Run(fmt.Sprintf("%s/%d/%s", c.name, n, name), func(b *testing.B) {
					a := newArena(n, 0)
					u := vec.Named(name)
					best := time.Duration(1 << 62)
					for b.Loop() {
						a.fill(1, 0)
						for range 50 {
							begin := time.Now()
							c.run(u, a)
							best = min(best, time.Since(begin))
						}
					}
					b.ReportMetric(float64(best.Nanoseconds())/float64(n), "best-ns/element")
				})
			}
		}
	}
}
