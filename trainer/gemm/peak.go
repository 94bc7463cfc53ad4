package gemm

import "time"

// Peak measures the peak rate of one core for float32 with the workspace's kernels and without
// memory accesses, in GFLOP/s (1e9 multiplications and additions per second). No multiplication on
// one thread is faster. Peak takes about the given time and returns the best of many short runs,
// because other programs may use the core. It returns 0 for portable code, whose limit is unknown.
func (ws *Workspace) Peak(d time.Duration) float64 { return ws.kernels.float32.measure(d) }

// PeakBFloat16 measures the peak rate for bfloat16.
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
		best = max(best, rounds*float64(k.peakOperations())/seconds/1e9)
	}
	return best
}

// peakOperations returns the number of multiplications and additions in a round of k.peak.
func (k *kernel) peakOperations() int { return 2 * k.pair * 2 * k.rows * k.lanes }
