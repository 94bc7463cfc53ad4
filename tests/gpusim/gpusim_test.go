//go:build cuda

package gpusim_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/tests/gpusim"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
)

func TestMain(m *testing.M) { gpusim.Main(m) }

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		check(t, err)
		return v
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bound opens the first GPU for a test.
func bound(t *testing.T) {
	t.Helper()
	g := must[*driver.GPU](t)(driver.Open(0))
	unbind := must[func()](t)(g.Bind())
	t.Cleanup(func() { unbind(); check(t, g.Close()) })
}

// again runs the test in a process with more variables, and reports whether this is that process.
func again(t *testing.T, more ...string) bool {
	t.Helper()
	if os.Getenv("GPUSIM_TEST") == t.Name() {
		return true
	}
	if out, err := gpusim.Again(t, t.Name(), append(more, "GPUSIM_TEST="+t.Name())...); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// TestDevices checks that variables set the number and the memory of the simulated GPUs.
func TestDevices(t *testing.T) {
	if again(t, "GPUSIM_DEVICES=3", "GPUSIM_MEMORY=1000000") {
		if n := must[int](t)(driver.Count()); n != 3 {
			t.Errorf("%d devices", n)
		}
		info := must[driver.Info](t)(driver.Describe(2))
		if info.Memory != 1000000 || info.Major != 9 {
			t.Errorf("%+v", info)
		}
	}
}

// TestVisibleDevices checks that CUDA_VISIBLE_DEVICES selects GPUs of the simulator by index or
// UUID, as in CUDA.
func TestVisibleDevices(t *testing.T) {
	const gpu = "GPU-67707573-696d-0000-0000-00000000000"
	if visible := os.Getenv("CUDA_VISIBLE_DEVICES"); os.Getenv("GPUSIM_TEST") != "" {
		var found []string
		if _, err := driver.Load(); err == nil { // otherwise no GPU is visible
			for i := range must[int](t)(driver.Count()) {
				found = append(found, strings.TrimPrefix(must[driver.Info](t)(driver.Describe(i)).UUID, gpu))
			}
		}
		if got, want := strings.Join(found, ","), os.Getenv("GPUSIM_WANT"); got != want {
			t.Errorf("of %q GPUs %q are seen, want %q", visible, got, want)
		}
		return
	}
	for visible, want := range map[string]string{"2": "2", "2,0": "2,0", "": "", "1,7,0": "1", "1,1": "1", gpu + "1,2": "1,2"} {
		if out, err := gpusim.Again(t, t.Name(), "GPUSIM_TEST=1", "GPUSIM_DEVICES=3", "CUDA_VISIBLE_DEVICES="+visible, "GPUSIM_WANT="+want); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// TestMemoryIsLimited checks that allocations beyond the memory of a GPU fail, and that freed
// memory can be allocated again.
func TestMemoryIsLimited(t *testing.T) {
	if again(t, "GPUSIM_MEMORY=100000") {
		bound(t)
		first := must[driver.Ptr](t)(driver.Alloc(60000))
		if _, err := driver.Alloc(60000); !errors.Is(err, driver.OutOfMemory) {
			t.Errorf("the second 60000 of 100000 bytes: %v", err)
		}
		check(t, driver.Free(first))
		must[driver.Ptr](t)(driver.Alloc(60000))
	}
}

// TestNewMemoryIsNaN checks that new memory is filled with NaN, to reveal reads of uninitialized
// values, and that reads beyond an allocation fail.
func TestNewMemoryIsNaN(t *testing.T) {
	bound(t)
	p := must[driver.Ptr](t)(driver.Alloc(8))
	got := make([]byte, 8)
	check(t, driver.Read(got, p))
	if string(got) != strings.Repeat("\xff", 8) {
		t.Errorf("%x", got)
	}
	if err := driver.Read(make([]byte, 9), p); err == nil {
		t.Error("9 bytes of 8 were read")
	}
}

// TestStreamsRunConcurrently checks that a stream does not see a late write of another stream
// unless it waits for its event. Only then does the simulator find missing waits.
func TestStreamsRunConcurrently(t *testing.T) {
	for _, waits := range []bool{false, true} {
		bound(t)
		p := must[driver.Ptr](t)(driver.Alloc(4))
		slow, quick := must[driver.Stream](t)(driver.NewStream(0)), must[driver.Stream](t)(driver.NewStream(0))
		to := must[driver.Host](t)(driver.AllocHost(4))
		written := must[driver.Event](t)(driver.NewEvent(true))
		release := make(chan struct{})
		wait := driver.NewHostFunc(func() { <-release })
		check(t, slow.Clear(p, 4))
		check(t, slow.Synchronize())
		check(t, slow.Call(wait))
		check(t, slow.Fill(p, 7, 1))
		check(t, slow.Record(written))
		if waits {
			check(t, quick.Wait(written))
		}
		check(t, quick.Download(to, p))
		if waits {
			if done, err := quick.Done(); done || err != nil {
				t.Errorf("the copy is done before what it waits for: %v", err)
			}
			close(release)
		}
		check(t, quick.Synchronize())
		want := uint32(0)
		if waits {
			want = 7
		} else {
			close(release)
		}
		if got := driver.View[uint32](to)[0]; got != want {
			t.Errorf("waits %t: read %d, want %d", waits, got, want)
		}
		check(t, slow.Synchronize())
	}
}

// TestGraphRunsWhenStarted checks that a captured graph runs when it is started, not during the
// capture, also on a second stream.
func TestGraphRunsWhenStarted(t *testing.T) {
	bound(t)
	p := must[driver.Ptr](t)(driver.Alloc(4))
	s, side := must[driver.Stream](t)(driver.NewStream(0)), must[driver.Stream](t)(driver.NewStream(0))
	fork, join := must[driver.Event](t)(driver.NewEvent(false)), must[driver.Event](t)(driver.NewEvent(false))
	check(t, s.Clear(p, 4))
	g := must[driver.Graph](t)(s.Capture(func() error {
		return errors.Join(s.Record(fork), side.Wait(fork), side.Fill(p, 5, 1), side.Record(join), s.Wait(join))
	}))
	x := must[driver.Exec](t)(g.Instantiate())
	read := func() uint32 {
		to := must[driver.Host](t)(driver.AllocHost(4))
		check(t, s.Download(to, p))
		check(t, s.Synchronize())
		return driver.View[uint32](to)[0]
	}
	if got := read(); got != 0 {
		t.Errorf("capture has done its work: %d", got)
	}
	check(t, s.Start(x))
	if got := read(); got != 5 {
		t.Errorf("read %d, want 5", got)
	}
	check(t, side.Fill(p, 6, 1)) // the side stream is usable again
	check(t, side.Synchronize())
	if got := read(); got != 6 {
		t.Errorf("read %d, want 6", got)
	}
}

// TestInvalidPTX checks that text without PTX is rejected as by the driver.
func TestInvalidPTX(t *testing.T) {
	bound(t)
	if _, err := driver.LoadPTX("wrong", "no code"); err == nil || !strings.Contains(err.Error(), "CUDA_ERROR_INVALID_PTX") || !strings.Contains(err.Error(), "no .version") {
		t.Error(err)
	}
}

// TestHandlesAreChecked checks that a destroyed stream is not valid anymore.
func TestHandlesAreChecked(t *testing.T) {
	bound(t)
	s := must[driver.Stream](t)(driver.NewStream(0))
	check(t, s.Close())
	if err := s.Synchronize(); err == nil {
		t.Error("a destroyed stream was waited for")
	}
}

// TestLostDevice checks that every call fails after a device is lost.
func TestLostDevice(t *testing.T) {
	if again(t, "GPUSIM_FAIL=lost:1") {
		bound(t)
		s := must[driver.Stream](t)(driver.NewStream(0))
		f := kernel(t, "elementwise", "add")
		p := must[driver.Ptr](t)(driver.Alloc(4))
		var a driver.Args
		check(t, s.Launch(f, driver.Launch{}, a.Ptr(p).Ptr(p).Ptr(p).Int64(1)))
		deadline := time.Now().Add(10 * time.Second)
		for time.Now().Before(deadline) {
			if err := s.Synchronize(); err != nil {
				if !strings.Contains(err.Error(), "CUDA_ERROR_ECC_UNCORRECTABLE") {
					t.Error(err)
				}
				break
			}
		}
		if _, err := driver.Alloc(4); err == nil {
			t.Error("memory of a lost device")
		}
		os.Exit(map[bool]int{true: 1}[t.Failed()]) // Cleanup would fail because the device is lost
	}
}
