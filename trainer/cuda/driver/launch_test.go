//go:build cuda

package driver_test

import (
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
)

// axpy returns the arguments of y += s*x, a kernel of the fake driver.
func axpy(a *driver.Args, y, x driver.Ptr, s float32, n int) *driver.Args {
	return a.Reset().Ptr(y).Ptr(x).Float(s).Int(n)
}

// TestLaunch checks the arguments, the grid, and the cluster size of a launch.
func TestLaunch(t *testing.T) {
	bound(t)
	s, f := newStream(t), kernel(t, "axpy")
	x, y := upload(t, s, 1, 2, 3, 4), upload(t, s, 10, 10, 10, 10)
	var a driver.Args
	must(t, s.Launch(f, driver.Launch{Grid: driver.Dim{X: 2}, Block: driver.Dim{X: 2}}, axpy(&a, y, x, 2, 3)))
	expect(t, s, y, 12, 14, 16, 10)
	must(t, s.Launch(f, driver.Launch{Grid: driver.Dim{X: 2}, Block: driver.Dim{X: 2}, Cluster: 2}, axpy(&a, y, x, 1, 4)))
	expect(t, s, y, 13, 16, 19, 14)
}

// TestLaunchStruct checks that Struct passes a struct to a kernel completely, at its alignment.
func TestLaunchStruct(t *testing.T) {
	bound(t)
	s, f := newStream(t), kernel(t, "sum")
	out := upload(t, s, 0, 0)
	large := struct {
		tag byte
		v   [16]float64
	}{tag: 3}
	for i := range large.v {
		large.v[i] = 2
	}
	var a driver.Args
	must(t, s.Launch(f, driver.Launch{Grid: driver.Dim{X: 1}, Block: driver.Dim{X: 1}}, driver.Struct(a.Ptr(out), &large)))
	expect(t, s, out, 0, 3.0234375) // the halves of 35 as a double
}

// TestLaunchErrors checks that errors name the kernel or the module, with sizes.
func TestLaunchErrors(t *testing.T) {
	g := bound(t)
	s, f := newStream(t), kernel(t, "axpy")
	var a driver.Args
	err := s.Launch(f, driver.Launch{Grid: driver.Dim{X: 3, Y: 2}, Block: driver.Dim{X: 2048}, Shared: 64}, axpy(&a, 0, 0, 1, 1))
	const want = `cuLaunchKernel: kernel "axpy", grid 3x2x1, block 2048x1x1, 64 bytes of shared memory, 4 arguments: CUDA_ERROR_FAKE (fake)`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}

	most, err := g.SharedMemory()
	if err != nil || most != 232448 {
		t.Fatal(most, err)
	}
	l := driver.Launch{Grid: driver.Dim{X: 1}, Block: driver.Dim{X: 1}, Shared: most}
	y := upload(t, s, 0)
	if err := s.Launch(f, l, axpy(&a, y, y, 1, 1)); err == nil {
		t.Error("more than 48 KiB of shared memory were given without AllowShared")
	}
	must(t, f.AllowShared(most))
	must(t, s.Launch(f, l, axpy(&a, y, y, 1, 1)))
	if err := f.AllowShared(most + 1); err == nil || !strings.Contains(err.Error(), `kernel "axpy", 232449 bytes`) {
		t.Errorf("got %v", err)
	}

	_, err = driver.LoadPTX("attention", "wrong")
	if err == nil || !strings.Contains(err.Error(), `module "attention": ptxas application ptx input, line 3; fatal: syntax error: CUDA_ERROR_INVALID_PTX`) {
		t.Errorf("got %v", err)
	}
	m, err := driver.LoadPTX("attention", "")
	must(t, err)
	if _, err := m.Function("none"); err == nil || !strings.Contains(err.Error(), `module "attention", kernel "none"`) {
		t.Errorf("got %v", err)
	}
	must(t, m.Close())
	if _, _, err := m.Global("x"); err == nil || !strings.Contains(err.(*driver.Error).Hint(), "too old for cuModuleGetGlobal") {
		t.Errorf("a function that the driver lacks: got %v", err)
	}
}

// TestInvalidArgsPanic checks that arguments that are too large or too many panic.
func TestInvalidArgsPanic(t *testing.T) {
	for name, add := range map[string]func(a *driver.Args){
		"int":   func(a *driver.Args) { a.Int(1 << 31) },
		"bytes": func(a *driver.Args) { driver.Struct(a, new([4097]byte)) },
		"count": func(a *driver.Args) {
			for range 65 {
				a.Int(0)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			add(new(driver.Args))
		})
	}
}

// TestStepsAllocateNothing checks that the driver calls of a training step do not allocate Go
// memory.
func TestStepsAllocateNothing(t *testing.T) {
	bound(t)
	s, f := newStream(t), kernel(t, "axpy")
	x, y := upload(t, s, 1), upload(t, s, 1)
	e, err := driver.NewEvent(false)
	must(t, err)
	h, err := driver.AllocHost(4)
	must(t, err)
	a := new(driver.Args)
	l := driver.Launch{Grid: driver.Dim{X: 1}, Block: driver.Dim{X: 1}}
	if n := testing.AllocsPerRun(100, func() {
		must(t, s.Launch(f, l, axpy(a, y, x, 2, 1)))
		must(t, s.Upload(x, h))
		must(t, s.Copy(x, y, 4))
		must(t, s.Clear(x, 4))
		must(t, s.Download(h, x))
		must(t, s.Record(e))
		must(t, s.Wait(e))
		must(t, s.Synchronize())
	}); n != 0 {
		t.Errorf("%g allocations", n)
	}
	must(t, e.Close())
	must(t, h.Free())
}
