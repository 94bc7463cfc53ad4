package gemm_test

import (
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/gemm"
)

func TestFastestKernelsAreChosen(t *testing.T) {
	names := gemm.Kernels()
	if got := gemm.NewWorkspace(1).Kernel(); got != names[0] {
		t.Errorf("kernels are %s, want the first of %v", got, names)
	}
	if last := names[len(names)-1]; last != "portable" {
		t.Errorf("last kernels are %s, want portable", last)
	}
}

// The limit is above what a product reaches at the same time, give or take what
// others do on the machine.
func TestPeakIsALimit(t *testing.T) {
	for _, name := range gemm.Kernels() {
		ws := gemm.NewWorkspaceFor(name, 1)
		peak := ws.Peak(20 * time.Millisecond)
		if name == "portable" {
			if peak != 0 {
				t.Errorf("portable: %v GFLOP/s, want 0", peak)
			}
			continue
		}
		p := product{m: 84, n: 96, k: 256}
		c, a, b := p.operands(1)
		best := 0.0
		for range 50 {
			start := time.Now()
			gemm.Float32(ws, c, a, b, false)
			best = max(best, 2*float64(p.m*p.n*p.k)/float64(time.Since(start).Nanoseconds()))
		}
		if best > 1.2*peak || best < peak/100 {
			t.Errorf("%s: a product ran at %.1f GFLOP/s, with a limit of %.1f", name, best, peak)
		}
	}
}
