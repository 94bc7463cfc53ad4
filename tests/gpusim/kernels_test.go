//go:build cuda

package gpusim_test

import (
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/kernels"
)

func kernel(t *testing.T, module, name string) *driver.Function {
	t.Helper()
	m := must[*driver.Module](t)(driver.LoadPTX(module, kernels.PTX(module)))
	return must[*driver.Function](t)(m.Function(name))
}

// TestKernelsAreInBothBuilds checks that every entry of the PTX has a kernel for the host with the
// same parameters. The simulator compares them when it looks up a kernel.
func TestKernelsAreInBothBuilds(t *testing.T) {
	bound(t)
	found := 0
	for _, module := range append(kernels.Modules(), kernels.HopperModules()...) {
		m := must[*driver.Module](t)(driver.LoadPTX(module, kernels.PTX(module)))
		for _, name := range kernels.Names(module) {
			must[*driver.Function](t)(m.Function(name))
			found++
		}
	}
	if found < 30 {
		t.Errorf("only %d kernels", found)
	}
}

// TestLaunchIsChecked checks that a launch with more threads, shared memory, or blocks than the
// GPU allows is rejected.
func TestLaunchIsChecked(t *testing.T) {
	bound(t)
	f := kernel(t, "elementwise", "add")
	s := must[driver.Stream](t)(driver.NewStream(0))
	p := must[driver.Ptr](t)(driver.Alloc(4))
	var a driver.Args
	a.Ptr(p).Ptr(p).Ptr(p).Int64(1)
	for _, l := range []driver.Launch{
		{Block: driver.Dim{X: 512}},
		{Block: driver.Dim{X: 32}, Shared: 49 << 10},
		{Block: driver.Dim{X: 32}, Grid: driver.Dim{X: 1, Y: 70000}},
	} {
		if err := s.Launch(f, l, &a); err == nil || !strings.Contains(err.Error(), `kernel "add"`) {
			t.Errorf("%+v: %v", l, err)
		}
	}
	check(t, s.Launch(f, driver.Launch{Block: driver.Dim{X: 256}}, &a))
	check(t, s.Synchronize())
}
