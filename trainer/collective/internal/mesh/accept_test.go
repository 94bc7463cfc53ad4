package mesh

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// exhausted is a listener of a process that has no file descriptors left for a while.
type exhausted struct {
	net.Listener
	failures atomic.Int32
}

func (e *exhausted) Accept() (net.Conn, error) {
	if e.failures.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: syscall.EMFILE}
	}
	return e.Listener.Accept()
}

func TestAcceptGoesOnAfterAFailure(t *testing.T) {
	o := plain
	var listeners [2]net.Listener
	for i := range listeners {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		e := &exhausted{Listener: l}
		e.failures.Store(2)
		listeners[i] = e
		o.Addrs = append(o.Addrs, l.Addr().String())
	}
	var m [2]Mesh
	for r := range m {
		o.Rank = r
		m[r] = Connect(listeners[r], o)
		defer m[r].Close()
	}
	for r := range m {
		m[r].Send(1-r, head(1), nil)
		if err := m[1-r].Receive(r, head(1), nil).Wait(t.Context()); err != nil {
			t.Errorf("rank %d: %v", 1-r, err)
		}
	}
}

// One that does not prove itself takes no more than its share of file descriptors.
func TestStrangersAreLimited(t *testing.T) {
	m := pair(t, plain)
	n := m[0].(*network)
	const limit = 2*sockets + maxStrangers
	dial := func() net.Conn {
		c, err := net.Dial("tcp", n.Addr(0))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	for range limit {
		dial()
	}
	for n.shaking.Load() < limit {
		time.Sleep(time.Millisecond)
	}
	c := dial()
	if _, err := io.ReadAll(c); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("one too many: %v", err)
	}
	// The others are still being waited for.
	if got := n.shaking.Load(); got != limit {
		t.Errorf("%d handshakes under way, want %d", got, limit)
	}
}
