package rendezvous

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// crowd returns the peers of a large job, with the given number of ranks per node.
func crowd(world, perNode int) []Peer {
	peers := make([]Peer, world)
	for r := range peers {
		node := r / perNode
		addr := netip.AddrFrom4([4]byte{10, 8, byte(node >> 8), byte(node)})
		peers[r] = Peer{netip.AddrPortFrom(addr, uint16(32768+7919*r%28000)), node}
	}
	return peers
}

// metered counts the bytes of all connections that its listener accepts, as the kernel does:
// bytes that the server sends and receives.
type metered struct {
	net.Listener
	in, out atomic.Int64
}

type meteredConn struct {
	net.Conn
	m *metered
}

func (m *metered) Accept() (net.Conn, error) {
	c, err := m.Listener.Accept()
	return meteredConn{c, m}, err
}

func (c meteredConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.m.in.Add(int64(n))
	return n, err
}

func (c meteredConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.m.out.Add(int64(n))
	return n, err
}

// joinCrowd makes all peers join over loopback, at most the given number at the same time, exchange
// their addresses, and leave. It returns the time from the first connection until the last rank has all
// addresses.
func joinCrowd(t testing.TB, peers []Peer, joining int) (took time.Duration, m *metered) {
	t.Helper()
	roomFor(t, 2*len(peers)+100)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m = &metered{Listener: l}
	const limit = time.Hour // a busy machine or the race detector must not cause a failure
	a := serve(t, m, len(peers), func(o *ServerOptions) { o.JoinTimeout = limit })
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var all sync.WaitGroup
	sessions := make([]*Session, len(peers))
	slots := make(chan struct{}, joining)
	began := time.Now()
	for r := range peers {
		all.Go(func() {
			id := Identity{Rank: r, WorldSize: len(peers), Host: fmt.Sprintf("n%05d", peers[r].Node), PID: r, Program: "p", Spec: "s"}
			slots <- struct{}{}
			s, err := Join(ctx, []string{a.addr}, a.secret, id)
			<-slots
			if err != nil {
				t.Error(err)
				return
			}
			sessions[r] = s
			freeze(t, s) // later messages are not part of joining
			got, err := s.Peers(ctx, "peers", peers[r])
			if err != nil || !slices.Equal(got, peers) {
				t.Errorf("rank %d learnt of %d ranks: %v", r, len(got), err)
			}
		})
	}
	all.Wait()
	took = time.Since(began)
	for _, s := range sessions {
		if s != nil {
			s.mu.Lock()
			s.progress = func() Progress { return Progress{} } // Leave sends the progress
			s.mu.Unlock()
			s.Leave(0, nil)
		}
	}
	if o, err := a.Wait(ctx); err != nil || o.First != nil {
		t.Errorf("the attempt ended with %v, %v", o.First, err)
	}
	return took, m
}

// roomFor raises the limit on open files of this process if it is too low.
func roomFor(t testing.TB, files int) {
	t.Helper()
	var now syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &now); err != nil {
		t.Fatal(err)
	}
	if now.Cur >= uint64(files) {
		return
	}
	more := syscall.Rlimit{Cur: uint64(files), Max: max(now.Max, uint64(files))}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &more); err != nil {
		t.Skipf("%d open files are allowed and %d needed: %v", now.Max, files, err)
	}
	t.Cleanup(func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &now); err != nil {
			t.Error(err)
		}
	})
}

// TestThousandsJoin checks that the bytes per rank are limited when thousands of ranks join. It
// prints the time but does not check it.
func TestThousandsJoin(t *testing.T) {
	const joining = 256 // on a busy machine, handshakes of all ranks could time out and be repeated
	for _, tt := range []struct{ world, perNode, table int }{
		{4096, 8, 12 << 10},
		{512, 1, 5 << 10},
	} {
		took, m := joinCrowd(t, crowd(tt.world, tt.perNode), joining)
		in, out := int(m.in.Load())/tt.world, int(m.out.Load())/tt.world
		t.Logf("%d ranks, %d on a node: %v, %d bytes to the server and %d from it for each", tt.world, tt.perNode, took.Round(time.Millisecond), in, out)
		if most := tt.table + 300; in > 400 || out > most {
			t.Errorf("%d ranks: %d bytes to the server and %d from it for each, want at most 400 and %d", tt.world, in, out, most)
		}
	}
}

// BenchmarkJoin4096 measures the time in which 4,096 ranks join.
func BenchmarkJoin4096(b *testing.B) {
	peers := crowd(4096, 8)
	for b.Loop() {
		joinCrowd(b, peers, len(peers))
	}
}

// TestPeersRoundTrip checks that the encoded list of peers is read unchanged, and that truncated
// lists are rejected.
func TestPeersRoundTrip(t *testing.T) {
	at := func(s string, node int) Peer { return Peer{netip.MustParseAddrPort(s), node} }
	for _, want := range [][]Peer{
		{at("127.0.0.1:1", 0)},
		{at("10.0.0.1:65535", 0), at("10.0.0.1:2", 0), at("10.0.0.2:2", 1), at("10.0.0.1:3", 0)},
		{at("[fe80::1%hsn0]:7", 3), at("[fe80::1%hsn1]:7", 3), at("[2001:db8::1]:7", 40000)},
		crowd(1000, 16),
	} {
		b, err := appendPeers(nil, want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := parsePeers(b, len(want))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%v: %v, %v", want, got, err)
		}
		for i := range b {
			if _, err := parsePeers(b[:i], len(want)); err == nil {
				t.Errorf("%v cut to %d bytes: accepted", want, i)
			}
		}
		if _, err := parsePeers(b, len(want)+1); err == nil {
			t.Errorf("%v for one rank more: accepted", want)
		}
	}
}

// FuzzPeers parses messages that a rank may send. Every accepted message is encoded unchanged.
func FuzzPeers(f *testing.F) {
	b, err := appendPeers(nil, crowd(5, 2))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b, 5)
	f.Add([]byte{1, 0, 0, 0, 0}, 1)
	f.Fuzz(func(t *testing.T, b []byte, ranks int) {
		if ranks < 1 || ranks > 1<<16 {
			return
		}
		peers, err := parsePeers(b, ranks)
		if err != nil {
			return
		}
		again, err := appendPeers(nil, peers)
		if err != nil {
			t.Fatal(err)
		}
		back, err := parsePeers(again, ranks)
		if err != nil || !slices.Equal(back, peers) || len(again) > len(b) {
			t.Fatalf("%v became %v, %v", peers, back, err)
		}
	})
}
