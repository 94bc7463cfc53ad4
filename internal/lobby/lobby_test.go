package lobby

import (
	"fmt"
	"math"
	"net"
	"slices"
	"syscall"
	"testing"
)

// fakeConn is a connection from an address. It only notes that it was closed.
type fakeConn struct {
	net.Conn
	from   string
	closed bool
}

func (c *fakeConn) Close() error { c.closed = true; return nil }

func (c *fakeConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(c.from), Port: 1} }

// TestEviction checks that a full lobby closes the oldest connection of the source with the most
// connections.
func TestEviction(t *testing.T) {
	for _, tt := range []struct {
		name    string
		enter   []string // source addresses in order of arrival
		evicted []int    // indices of the closed connections
	}{
		{"room for all", []string{"10.0.0.1", "10.0.0.1", "10.0.0.1"}, nil},
		{"oldest of one source", []string{"10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.1"}, []int{0, 1}},
		{"source that has most", []string{"10.0.0.2", "10.0.0.1", "10.0.0.1", "10.0.0.1"}, []int{1}},
		{"new connection of the source that has most", []string{"10.0.0.2", "10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.1"}, []int{1, 2}},
		{"loopback addresses", []string{"10.0.0.2", "127.0.0.1", "127.0.0.2", "::1"}, []int{1}},
		{"addresses of an IPv6 network", []string{"fd00::1", "fd00:0:0:1::1", "fd00:0:0:1::2", "fd00::2", "fd00:0:0:1::3"}, []int{0, 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := New(3)
			var conns []*fakeConn
			for _, from := range tt.enter {
				c := &fakeConn{from: from}
				conns = append(conns, c)
				l.Enter(c)
			}
			for i, c := range conns {
				if want := slices.Contains(tt.evicted, i); c.closed != want {
					t.Errorf("connection %d of %s: closed %v, want %v", i, c.from, c.closed, want)
				}
			}
			if got, want := l.Len(), min(3, len(tt.enter)); got != want {
				t.Errorf("%d connections wait, want %d", got, want)
			}
		})
	}
}

// TestLeave checks that the lobby does not close a connection that has left, and does not count it.
func TestLeave(t *testing.T) {
	l := New(2)
	first := &fakeConn{from: "10.0.0.1"}
	if leave := l.Enter(first); !leave() || leave() {
		t.Error("leave must report the connection once")
	}
	for i := range 10 {
		l.Enter(&fakeConn{from: fmt.Sprintf("10.0.0.%d", i+1)})
	}
	if first.closed {
		t.Error("a connection was closed after it had left")
	}
	second := &fakeConn{from: "10.0.1.1"}
	leave := l.Enter(second)
	for range 10 {
		l.Enter(&fakeConn{from: "10.0.1.1"})
	}
	if !second.closed || leave() {
		t.Errorf("closed %v, and leave must report an evicted connection", second.closed)
	}
}

// TestLimitByFiles checks that unauthenticated connections leave most file descriptors to the process.
func TestLimitByFiles(t *testing.T) {
	for _, tt := range []struct {
		limit int
		files uint64
		want  int
	}{
		{256, 1 << 20, 256},
		{2304, 4096, 512},
		{256, 1024, 128},
		{256, 2048, 256},
		{256, 4, 1},
		{1 << 20, 1<<64 - 1, 1 << 20}, // RLIM_INFINITY
	} {
		if got := limitByFiles(tt.limit, tt.files); got != tt.want {
			t.Errorf("limit %d with %d files: got %d, want %d", tt.limit, tt.files, got, tt.want)
		}
	}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	const all = math.MaxInt
	if got, want := New(all).max, limitByFiles(all, uint64(files.Cur)); got != want || got == all {
		t.Errorf("got a lobby of %d, want %d", got, want)
	}
}
