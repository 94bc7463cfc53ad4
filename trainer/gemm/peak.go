package gemm

import "time"

// Peak measures how fast one core multiplies and adds with the workspace's kernels
// for float32 if it never waits for memory, in GFLOP/s (1e9 products and sums a
// second): what no multiplication on one thread exceeds. It takes about the given
// time and returns the best of many short runs, since others may use the core
// too. For portable code, whose limit is not known, it is 0.
func (ws *Workspace) Peak(d time.Duration) float64 { return ws.kernels.float32.measure(d) }

// PeakBFloat16 is Peak of the kernels for bfloat16.
func (ws *Workspace) PeakBFloat16(d time.Duration) float64 { return ws.kernels.bfloat16.measure(d) }

func (k *kernel) measure(d time.Duration) float64 {
	if k.peak == nil {
		return 0
	}
	const rounds = 1 << 14
	best := 0.0
	for start := time.Now(); best == 0 || time.Since(start) < d; {
		begin := time.Now()
		k.peak(rounds)
		seconds := time.Since(begin).Seconds()
		best = max(best, 2*float64(k.pair*2*k.rows*k.lanes*rounds)/seconds/1e9)
	}
	return best
}
