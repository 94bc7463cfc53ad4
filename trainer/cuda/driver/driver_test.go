//go:build cuda

package driver_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
)

// TestDescribe checks the properties of a GPU and of a MIG instance, and the error for a GPU that
// does not exist.
func TestDescribe(t *testing.T) {
	n, err := driver.Count()
	if err != nil || n != 2 {
		t.Fatal(n, err)
	}
	got, err := driver.Describe(1)
	must(t, err)
	want := driver.Info{Ordinal: 1, Name: "Fake H100 MIG 1g.10gb", UUID: "MIG-01020304-0506-0708-090a-0b0c0d0e0f10", MIG: true,
		Major: 9, Processors: 132, Memory: 1 << 30, PCI: "0000:3b:01.0"}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	whole, err := driver.Describe(0)
	must(t, err)
	if whole.MIG || !strings.HasPrefix(whole.UUID, "GPU-") {
		t.Errorf("got %+v", whole)
	}
	if _, err := driver.Open(2); err == nil || !strings.Contains(err.Error(), "cuDeviceGet: GPU 2: CUDA_ERROR_FAKE") {
		t.Errorf("got %v", err)
	}
}

// TestBind checks that a goroutine uses the GPU that it bound last, and that calls fail without
// one.
func TestBind(t *testing.T) {
	if _, err := driver.Alloc(16); !errors.Is(err, driver.InvalidContext) {
		t.Errorf("unbound: got %v", err)
	}
	bound(t)
	other, err := driver.Open(1)
	must(t, err)
	unbind, err := other.Bind()
	must(t, err)
	at, err := driver.Alloc(16)
	must(t, err)
	must(t, driver.Free(at))
	unbind()
	if _, _, err := other.Free(); err != nil {
		t.Errorf("the first GPU is not bound any more: %v", err)
	}
	must(t, other.Close())
	done := make(chan error)
	go func() {
		_, err := driver.Alloc(16)
		done <- err
	}()
	if err := <-done; !errors.Is(err, driver.InvalidContext) {
		t.Errorf("another goroutine: got %v", err)
	}
}

// TestCopies checks copies, clears, and fills in a stream, and reads from the GPU.
func TestCopies(t *testing.T) {
	bound(t)
	s := newStream(t)
	a, b := upload(t, s, 1, 2, 3, 4), upload(t, s, 0, 0, 0, 0)
	must(t, s.Copy(b+4, a, 8))
	expect(t, s, b, 0, 1, 2, 0)
	must(t, s.Clear(b, 8))
	must(t, s.Fill(a, 0x40000000, 2)) // 2.0
	expect(t, s, b, 0, 0, 2, 0)
	expect(t, s, a, 2, 2, 3, 4)
	got := make([]byte, 4)
	must(t, driver.Read(got, a))
	if string(got) != "\x00\x00\x00\x40" {
		t.Errorf("got %x", got)
	}
}

// TestHostParts checks views of parts of pinned memory, and that invalid parts panic.
func TestHostParts(t *testing.T) {
	bound(t)
	h, err := driver.AllocHost(16)
	must(t, err)
	defer func() { must(t, h.Free()) }()
	copy(h.Bytes(), "0123456789abcdef")
	if got := string(h.Part(4, 4).Bytes()); got != "4567" {
		t.Errorf("got %q", got)
	}
	for name, misuse := range map[string]func(){
		"beyond the end":     func() { h.Part(12, 8) },
		"not whole elements": func() { driver.View[float64](h.Part(0, 12)) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			misuse()
		})
	}
}

// TestEvents checks that events order streams and measure time.
func TestEvents(t *testing.T) {
	bound(t)
	s, other := newStream(t), newStream(t)
	var e [2]driver.Event
	for i := range e {
		var err error
		e[i], err = driver.NewEvent(true)
		must(t, err)
		must(t, s.Record(e[i]))
	}
	must(t, other.Wait(e[1]))
	must(t, e[1].Synchronize())
	if d, err := e[1].Since(e[0]); err != nil || d != 1500*time.Microsecond {
		t.Errorf("got %v, %v", d, err)
	}
	if done, err := e[0].Done(); done || err != nil {
		t.Errorf("an event that is not ready: got %v, %v", done, err)
	}
	if done, err := s.Done(); !done || err != nil {
		t.Errorf("got %v, %v", done, err)
	}
	untimed, err := driver.NewEvent(false)
	must(t, err)
	if _, err := untimed.Since(e[0]); err == nil {
		t.Error("an event without time returned a time")
	}
	for _, e := range append(e[:], untimed) {
		must(t, e.Close())
	}
	if least, greatest, err := driver.StreamPriorities(); least != 0 || greatest != -5 || err != nil {
		t.Errorf("got %d, %d, %v", least, greatest, err)
	}
	if s.Handle() == 0 || s.Handle() == other.Handle() {
		t.Errorf("handles %#x and %#x", s.Handle(), other.Handle())
	}
}

// TestOutOfMemory checks that an out-of-memory error has CUDA's name, the sizes, and a hint.
func TestOutOfMemory(t *testing.T) {
	bound(t)
	_, err := driver.Alloc(1 << 40)
	if !errors.Is(err, driver.OutOfMemory) {
		t.Fatalf("got %v", err)
	}
	const want = "cuMemAlloc: 1099511627776 bytes, where 1073741824 of 1073741824 are free: CUDA_ERROR_OUT_OF_MEMORY (out of memory)"
	if err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	if hint := err.(*driver.Error).Hint(); !strings.Contains(hint, "train.batch") {
		t.Errorf("hint %q", hint)
	}
}
