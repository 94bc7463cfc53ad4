//go:build cuda

package engine_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/tests/gpusim"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/engine"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

const inChild = "ENGINE_TEST_CHILD"

// use opens a device without closing it and runs a few operations, and in a group, if grouped is set,
// one more.
func use(grouped bool) (err error) {
	defer device.Recover(&err)
	gpu, err := driver.Open(0)
	if err != nil {
		return err
	}
	d, err := engine.Open(gpu, engine.Options{})
	if err != nil {
		return err
	}
	x, y := d.Alloc(device.Float32, 1<<20), d.Alloc(device.Float32, 12)
	d.Zero(x)
	d.Add(x, x, x)
	if grouped {
		sums(d, x, x, 1) // allocates the memory of groups
	}
	m := device.Rows(x, 3, 4)
	d.LayerNorm(device.Rows(y, 3, 4), x.Slice(20, 23), x.Slice(30, 33), m, x.Slice(40, 44), x.Slice(50, 54))
	if grouped {
		entered, err := gpu.Enter()
		if err != nil {
			return err
		}
		_ = d.Stream().Synchronize() // the group detects the error
		entered.Leave()
		sums(d, y, y, 1)
	}
	d.Read(make([]float32, 12), y)
	return nil
}

// TestFailures checks that each failure results in an error with CUDA's error, the operation, and
// its shapes.
func TestFailures(t *testing.T) {
	if os.Getenv(inChild) != "" {
		err := use(os.Getenv(inChild) == "grouped")
		if err == nil {
			t.Fatal("no error")
		}
		t.Logf("error: %v", err)
		var h interface{ Hint() string }
		if errors.As(err, &h) {
			t.Logf("hint: %s", h.Hint())
		}
		return
	}
	gpusim.Require(t)
	for _, c := range []struct {
		name, fail, memory string
		grouped            bool
		want               []string
	}{
		{"out of memory", "alloc:2", "", false, []string{"cuda 0, Simulated GPU, GPU-", ": alloc of", "cuMemAlloc", "CUDA_ERROR_OUT_OF_MEMORY", "bytes, where"}},
		{"a small GPU", "", "5000000", false, []string{"alloc of 1048576: cuMemAlloc", "CUDA_ERROR_OUT_OF_MEMORY", "4194304 bytes, where 2902848 of 5000000 are free", "hint: "}},
		{"a launch that is refused", "refuse:layer_norm", "", false, []string{"layer_norm of 3x4: cuLaunchKernel", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", `kernel "layer_norm"`}},
		{"a kernel that fails", "launch:layer_norm", "", false, []string{"CUDA_ERROR_LAUNCH_FAILED", "detected in read of 12, after layer_norm of 3x4", "CUDA_LAUNCH_BLOCKING=1"}},
		{"a kernel that fails before a group", "launch:layer_norm", "", true, []string{"CUDA_ERROR_LAUNCH_FAILED", "detected in add of 12, after layer_norm of 3x4"}},
		{"a lost device", "lost:2", "", false, []string{"CUDA_ERROR_ECC_UNCORRECTABLE", "after layer_norm of 3x4", "drain the node"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			more := []string{inChild + "=1", "GPUSIM_FAIL=" + c.fail}
			if c.grouped {
				more[0] = inChild + "=grouped"
			}
			if c.memory != "" {
				more = append(more, "GPUSIM_MEMORY="+c.memory)
			}
			out, err := gpusim.Again(t, "TestFailures", more...)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("%q is not in\n%s", want, out)
				}
			}
		})
	}
}

// TestBlockingNamesTheOperation checks that the launch itself fails with CUDA_LAUNCH_BLOCKING, so
// that the error names the operation that failed.
func TestBlockingNamesTheOperation(t *testing.T) {
	gpusim.Require(t)
	out, err := gpusim.Again(t, "TestFailures", inChild+"=1", "GPUSIM_FAIL=launch:add", "CUDA_LAUNCH_BLOCKING=1")
	if err != nil || !strings.Contains(out, "detected in add of 1048576, after zero of 1048576: cuLaunchKernel") || !strings.Contains(out, "CUDA_ERROR_LAUNCH_FAILED") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestHang checks that the simulator can run a kernel that never ends: reads of its result wait.
func TestHang(t *testing.T) {
	if os.Getenv(inChild) != "" {
		done := make(chan error, 1)
		go func() { done <- use(false) }()
		select {
		case err := <-done:
			t.Errorf("use returned: %v", err)
		case <-time.After(2 * time.Second):
			t.Log("it hangs")
		}
		return
	}
	gpusim.Require(t)
	if out, err := gpusim.Again(t, "TestHang", inChild+"=1", "GPUSIM_FAIL=hang:add"); err != nil || !strings.Contains(out, "it hangs") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestRecoverIgnoresOtherPanics checks that Recover does not catch panics that are not failures of
// a device.
func TestRecoverIgnoresOtherPanics(t *testing.T) {
	defer func() {
		if v := recover(); v != "other" {
			t.Errorf("recovered %v", v)
		}
	}()
	_ = func() (err error) {
		defer device.Recover(&err)
		panic("other")
	}()
}
