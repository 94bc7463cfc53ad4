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

// TestPeak checks that the peak rate is known for all kernels except portable ones. It does not
// compare rates, because other programs slow down one measurement more than the next.
// TestPeakOperations checks what Peak counts.
func TestPeak(t *testing.T) {
	for _, ws := range workspaces() {
		for _, rate := range []float64{ws.Peak(time.Millisecond), ws.PeakBFloat16(time.Millisecond)} {
			if known := ws.Kernel() != "portable"; rate > 0 != known {
				t.Errorf("%s: peak is %v GFLOP/s", ws.Kernel(), rate)
			}
		}
	}
}
