//go:build cuda

package driver_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
)

// TestGraph checks that a captured graph runs only when it is started, repeatedly.
func TestGraph(t *testing.T) {
	bound(t)
	s, f := newStream(t), kernel(t, "axpy")
	x, y := upload(t, s, 1, 2), upload(t, s, 0, 0)
	l := driver.Launch{Grid: driver.Dim{X: 1}, Block: driver.Dim{X: 2}}
	calls := 0
	h := driver.NewHostFunc(func() { calls++ })
	defer h.Close()
	g, err := s.Capture(func() error {
		// Both launches use one Args, which is copied when they are recorded.
		var a driver.Args
		must(t, s.Launch(f, l, axpy(&a, y, x, 10, 2)))
		must(t, s.Launch(f, l, axpy(&a, y, x, 1, 1)))
		return s.Call(h)
	})
	must(t, err)
	e, err := g.Instantiate()
	must(t, err)
	must(t, g.Close())
	expect(t, s, y, 0, 0)
	must(t, s.Start(e))
	must(t, s.Start(e))
	expect(t, s, y, 22, 40)
	if calls != 2 {
		t.Errorf("the host's function was called %d times", calls)
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
