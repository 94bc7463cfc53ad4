package mesh

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// exhausted is a listener of a process that temporarily has no free file descriptors.
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

// TestAcceptContinuesAfterFailure checks that ranks still connect after Accept has failed, for
// example because there were too many open files.
func TestAcceptContinuesAfterFailure(t *testing.T) {
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

// TestSilentConnectionsDoNotLockOutRanks checks that silent connections use a limited number of
// file descriptors and do not lock out the ranks.
func TestSilentConnectionsDoNotLockOutRanks(t *testing.T) {
	m := pair(t, plain)
	n := m[0].(*network)
	const limit = 2*sockets + maxUnauthenticated
	dial := func() net.Conn {
		c, err := net.Dial("tcp", n.Addr(0))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	first := dial()
	for range limit {
		dial()
	}
	// The last connection has replaced the first.
	if _, err := io.ReadAll(first); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("oldest connection: %v", err)
	}
	if got := n.unauthenticated.Len(); got > limit {
		t.Errorf("%d connections without a proof, want at most %d", got, limit)
	}
	// These connections never close on their own.
	for range limit {
		n.unauthenticated.Enter(silentConn{})
	}
	m[1].Send(0, head(1), nil)
	if err := m[0].Receive(1, head(1), nil).Wait(t.Context()); err != nil {
		t.Errorf("rank 1 was locked out: %v", err)
	}
}

// silentConn is an unauthenticated connection that sends nothing and ignores Close.
type silentConn struct{ net.Conn }

func (silentConn) Close() error         { return nil }
func (silentConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// counted counts the reads and writes of the connections that it accepts.
type counted struct {
	net.Listener
	reads, writes atomic.Int32
}

type countedConn struct {
	net.Conn
	l *counted
}

func (l *counted) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return countedConn{c, l}, err
}

func (c countedConn) Read(b []byte) (int, error)  { c.l.reads.Add(1); return c.Conn.Read(b) }
func (c countedConn) Write(b []byte) (int, error) { c.l.writes.Add(1); return c.Conn.Write(b) }

// TestInvalidConnectionsAreReadOnce checks that a connection that does not use the protocol of the
// ranks is read once and not answered.
func TestInvalidConnectionsAreReadOnce(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &counted{Listener: tcp}
	o := plain
	o.Addrs = []string{tcp.Addr().String(), "127.0.0.1:1"}
	m := Connect(l, o)
	defer m.Close()
	const many = 300
	for i := range many {
		c, err := net.Dial("tcp", tcp.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			fmt.Fprint(c, "GET / HTTP/1.1\r\n\r\n"+strings.Repeat("x", 100))
			if b, _ := io.ReadAll(c); len(b) > 0 { // the connection may end with a reset
				t.Fatalf("answered %q", b)
			}
		}
		c.Close()
	}
	for l.reads.Load() < many {
		time.Sleep(time.Millisecond)
	}
	if r, w := l.reads.Load(), l.writes.Load(); r != many || w != 0 {
		t.Errorf("%d reads and %d writes for %d strangers", r, w, many)
	}
}

// TestListenersCloseOnceAllAreConnected checks that ranks stop listening when all ranks are
// connected, so that unauthenticated connections cost nothing.
func TestListenersCloseOnceAllAreConnected(t *testing.T) {
	m := pair(t, plain)
	for r := range m {
		m[r].Send(1-r, head(1), nil)
		if err := m[1-r].Receive(r, head(1), nil).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for r := range m {
		for {
			c, err := net.Dial("tcp", m[r].Addr(r))
			if errors.Is(err, syscall.ECONNREFUSED) {
				break
			}
			if err == nil {
				c.Close()
			}
			time.Sleep(time.Millisecond)
		}
	}
	for r := range m {
		m[r].Send(1-r, head(2), nil)
		if err := m[1-r].Receive(r, head(2), nil).Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
