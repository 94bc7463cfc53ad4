//go:build cuda

package driver_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
)

// TestGraph checks that a captured graph runs only when it is started, repeatedly, and can be
// updated.
func TestGraph(t *testing.T) {
	bound(t)
	s, f := newStream(t), kernel(t, "axpy")
	x, y := upload(t, s, 1, 2), upload(t, s, 0, 0)
	l := driver.Launch{Grid: driver.Dim{X: 1}, Block: driver.Dim{X: 2}}
	calls := 0
	h := driver.NewHostFunc(func() { calls++ })
	defer h.Close()
	record := func(factor float32, more int) driver.Graph {
		g, err := s.Capture(func() error {
			if capturing, err := s.Capturing(); !capturing || err != nil {
				t.Errorf("capturing: %v, %v", capturing, err)
			}
			// Both launches use one Args, which is copied when they are recorded.
			var a driver.Args
			must(t, s.Launch(f, l, axpy(&a, y, x, factor, 2)))
			for range more {
				must(t, s.Launch(f, l, axpy(&a, y, x, 1, 1)))
			}
			return s.Call(h)
		})
		must(t, err)
		return g
	}
	g := record(10, 1)
	e, err := g.Instantiate()
	must(t, err)
	must(t, g.Close())
	expect(t, s, y, 0, 0)
	must(t, s.UploadGraph(e))
	must(t, s.Start(e))
	must(t, s.Start(e))
	expect(t, s, y, 22, 40)
	if calls != 2 {
		t.Errorf("the host's function was called %d times", calls)
	}

	if ok, err := e.Update(record(1, 1)); !ok || err != nil {
		t.Errorf("update: %v, %v", ok, err)
	}
	must(t, s.Start(e))
	expect(t, s, y, 24, 42)
	if ok, err := e.Update(record(1, 2)); ok || err != nil {
		t.Errorf("update with a graph of another form: %v, %v", ok, err)
	}
	must(t, e.Close())
}

// TestCaptureFails checks that a failed capture returns its cause and leaves the stream usable.
func TestCaptureFails(t *testing.T) {
	bound(t)
	s := newStream(t)
	if _, err := s.Capture(s.Synchronize); err == nil || !strings.Contains(err.Error(), "capture a graph: cuStreamSynchronize") {
		t.Errorf("got %v", err)
	}
	cause := errors.New("the body's own")
	if _, err := s.Capture(func() error { return cause }); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	must(t, s.Synchronize())
}

func TestHostFunc(t *testing.T) {
	bound(t)
	s := newStream(t)
	called := false
	h := driver.NewHostFunc(func() { called = true })
	must(t, s.Call(h))
	must(t, s.Synchronize())
	if !called {
		t.Error("not called")
	}
	h.Close()
}
