package gemm_test

import (
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/gemm"
)

// TestFastestKernelsAreSelected checks that a workspace uses the first kernels of the list, and
// that portable ones are last.
func TestFastestKernelsAreSelected(t *testing.T) {
	names := gemm.Kernels()
	if got := gemm.NewWorkspace(1).Kernel(); got != names[0] {
		t.Errorf("kernels are %s, want the first of %v", got, names)
	}
	if last := names[len(names)-1]; last != "portable" {
		t.Errorf("last kernels are %s, want portable", last)
	}
}

// TestPeakIsALimit checks that the peak rate is higher than the rate of a multiplication at about
// the same time, with a tolerance for other programs on the machine.
func TestPeakIsALimit(t *testing.T) {
	for _, ws := range workspaces() {
		for _, p := range []product{{m: 84, n: 96, k: 256}, {m: 84, n: 96, k: 256, bf16: true}} {
			limit := ws.Peak
			if p.bf16 {
				limit = ws.PeakBFloat16
			}
			peak := limit(20 * time.Millisecond)
			if ws.Kernel() == "portable" {
				if peak != 0 {
					t.Errorf("%v: portable: %v GFLOP/s, want 0", p, peak)
				}
				continue
			}
			c, a, b := p.operands(1)
			best := 0.0
			for range 50 {
				start := time.Now()
				p.multiply(ws, c, a, b, gemm.Zero())
				best = max(best, 2*float64(p.m*p.n*p.k)/float64(time.Since(start).Nanoseconds()))
			}
			if best > 1.2*peak || best < peak/100 {
				t.Errorf("%v: %s ran at %.1f GFLOP/s, with a limit of %.1f", p, ws.Kernel(), best, peak)
			}
		}
	}
}
