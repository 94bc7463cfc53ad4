package probe

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/netif"
)

// loopback returns a choice of 127.0.0.n, which needs no privilege.
func loopback(t testing.TB, n int) netif.Choice {
	t.Helper()
	lo, err := net.InterfaceByName("lo")
	must(t, err)
	addr := netip.AddrFrom4([4]byte{127, 0, 0, byte(n)})
	// Real hosts have an MTU of 9000. A larger one would not improve the test.
	return netif.Choice{Interface: "lo", Index: lo.Index, Addr: addr, Prefix: netip.MustParsePrefix("127.0.0.0/8"), MTU: min(lo.MTU, 9000)}
}

// proveRing runs the same steps as a job: all hosts listen, probe, and report.
func proveRing(t testing.TB, n int) ([]Report, time.Duration) {
	t.Helper()
	start := time.Now()
	listeners := make([]*Listener, n)
	endpoints := make([]Endpoint, n)
	for i := range listeners {
		l, err := Listen(t.Context(), fmt.Sprintf("n%d", i), loopback(t, i+1), [32]byte{1})
		must(t, err)
		defer l.Close()
		listeners[i], endpoints[i] = l, l.Endpoint()
	}
	reports := make([]Report, n)
	var all sync.WaitGroup
	for i, l := range listeners {
		all.Go(func() {
			peers := Neighbors(endpoints, i)
			results := make([]Result, len(peers))
			var each sync.WaitGroup
			for k, p := range peers {
				each.Go(func() { results[k] = l.Probe(t.Context(), p, time.Minute) })
			}
			each.Wait()
			reports[i] = l.Report(results)
		})
	}
	all.Wait()
	return reports, time.Since(start)
}

// TestRing64 checks that each of 64 endpoints probes its two neighbors without a finding.
func TestRing64(t *testing.T) {
	reports, took := proveRing(t, 64)
	t.Logf("64 endpoints took %s", took)
	for _, r := range reports {
		for _, x := range r.Results {
			if !x.OK() || x.Local != "" {
				t.Fatalf("%s to %s: %+v", x.From.Host, x.To.Host, x)
			}
		}
		if len(r.Results) != 2 {
			t.Fatalf("%s probed %d neighbours, want 2", r.Endpoint.Host, len(r.Results))
		}
	}
}

// BenchmarkRing64 measures the time in which 64 endpoints probe their neighbors.
func BenchmarkRing64(b *testing.B) {
	for b.Loop() {
		proveRing(b, 64)
	}
}

// busyTimeout is for probes that do not succeed. A busy machine needs seconds to connect.
const busyTimeout = 5 * time.Second

// TestListenerOfAnotherJob checks a listener of another job. It closes the connection, which is
// not an answer.
func TestListenerOfAnotherJob(t *testing.T) {
	a, err := Listen(t.Context(), "a", loopback(t, 1), [32]byte{1})
	must(t, err)
	defer a.Close()
	b, err := Listen(t.Context(), "b", loopback(t, 2), [32]byte{2})
	must(t, err)
	defer b.Close()
	r := a.Probe(t.Context(), b.Endpoint(), busyTimeout)
	if r.OK() || r.Bound.Outcome != Reset || r.Bound.Stage != StageGreet || r.Path.Small || r.Path.Up.Passed > 0 {
		t.Errorf("%+v", r)
	}
	if h := b.Report(nil).Heard; len(h) != 0 {
		t.Errorf("heard a stranger: %+v", h)
	}
}

// TestRepeatedMessagesAreNoEvidence checks that a recorded greeting or question that is replayed
// from a different address gets no answer and is not evidence.
func TestRepeatedMessagesAreNoEvidence(t *testing.T) {
	secret := [32]byte{1}
	b, err := Listen(t.Context(), "b", loopback(t, 2), secret)
	must(t, err)
	defer b.Close()

	greeting := func(h hello) error {
		c, err := net.Dial("tcp", netip.AddrPortFrom(b.Endpoint().Addr, b.Endpoint().TCP).String())
		must(t, err)
		defer c.Close()
		must(t, writeFrame(c, &secret, "hello", h))
		var w welcome
		return readFrame(c, &secret, "welcome", &w, h.Nonce[:])
	}
	h := hello{Version: version, From: newID(), Nonce: newID()}
	must(t, greeting(h))
	if greeting(h) == nil {
		t.Error("a repeated greeting was answered")
	}

	// The answer to the last question arrives after the answers to all earlier ones.
	from, other := newID(), newID()
	ask := func(c net.Conn, who, token ID, times int) {
		for range times {
			_, err := c.Write(datagram{kind: question, from: who, token: token}.encode(&secret, minData))
			must(t, err)
		}
	}
	answers := func(c net.Conn, token ID, last ID) (n int) {
		buf := make([]byte, maxPacket)
		for {
			got, err := c.Read(buf)
			must(t, err)
			switch d, _ := decode(&secret, buf[:got]); d.token {
			case last:
				return n
			case token:
				n++
			}
		}
	}
	dial := func(source string) net.Conn {
		d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(source)}}
		c, err := d.Dial("udp", netip.AddrPortFrom(b.Endpoint().Addr, b.Endpoint().UDP).String())
		must(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	honest, replayer := dial("127.0.0.3"), dial("127.0.0.4")
	token, last := newID(), newID()
	ask(honest, from, token, 1)
	ask(honest, other, last, 1)
	if n := answers(honest, token, last); n != 1 {
		t.Errorf("%d answers to a question", n)
	}
	last = newID()
	ask(replayer, from, token, 2*maxAnswers)
	ask(replayer, other, last, 1)
	if n := answers(replayer, token, last); n >= maxAnswers {
		t.Errorf("%d answers to a repeated question", n)
	}
	for _, s := range b.Report(nil).Heard {
		if s.ID == from && s.Source != netip.MustParseAddr("127.0.0.3") {
			t.Errorf("evidence from a repeated question: %+v", s)
		}
	}
}

// TestStranger checks that an unsigned answer is attributed to another program.
func TestStranger(t *testing.T) {
	a, err := Listen(t.Context(), "a", loopback(t, 1), [32]byte{1})
	must(t, err)
	defer a.Close()
	to := acceptWith(t, func(c net.Conn) { fmt.Fprint(c, "220 mail.example.org ready\r\n") })
	var r Result
	for again := true; again; again = r.Bound.Outcome == TimedOut {
		r = a.Probe(t.Context(), to, DefaultTimeout)
	}
	if r.Bound.Outcome != Unauthenticated {
		t.Errorf("%+v", r.Bound)
	}
	if f := Diagnose([]Report{a.Report([]Result{r}), {Endpoint: to}}); len(f) == 0 || f[0].Cause != DuplicateAddress {
		t.Errorf("found %v", f)
	}
}

// acceptWith returns the endpoint of a host that calls serve with each connection and then
// closes it.
func acceptWith(t *testing.T, serve func(net.Conn)) Endpoint {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.2:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return Endpoint{Host: "b", Interface: "lo", Addr: netip.MustParseAddr("127.0.0.2"), MTU: 1500, ID: newID(), TCP: uint16(l.Addr().(*net.TCPAddr).Port)}
}

// TestSilentConnectionsDoNotDisturbTheProbe checks that the probe works although another user of
// the node opens as many silent connections as the limit allows.
func TestSilentConnectionsDoNotDisturbTheProbe(t *testing.T) {
	a, err := Listen(t.Context(), "a", loopback(t, 1), [32]byte{1})
	must(t, err)
	defer a.Close()
	b, err := Listen(t.Context(), "b", loopback(t, 2), [32]byte{1})
	must(t, err)
	defer b.Close()
	for range maxUnauthenticated {
		c, err := net.Dial("tcp", netip.AddrPortFrom(b.Endpoint().Addr, b.Endpoint().TCP).String())
		must(t, err)
		defer c.Close()
	}
	for range maxUnauthenticated { // these do not end on their own
		b.unauthenticated.Enter(silentConn{})
	}
	var r Result
	for again := true; again; again = r.Bound.Outcome == TimedOut || r.Bare.Outcome == TimedOut {
		r = a.Probe(t.Context(), b.Endpoint(), DefaultTimeout)
	}
	if !r.OK() || !r.Bare.works() {
		t.Errorf("%+v", r)
	}
}

// silentConn is an unauthenticated connection that sends nothing and does not close.
type silentConn struct{ net.Conn }

func (silentConn) Close() error         { return nil }
func (silentConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// TestProbeRetriesClosedConnections checks that a connection that ends before an answer arrives is
// tried again.
func TestProbeRetriesClosedConnections(t *testing.T) {
	a, err := Listen(t.Context(), "a", loopback(t, 1), [32]byte{1})
	must(t, err)
	defer a.Close()
	b, err := Listen(t.Context(), "b", loopback(t, 2), [32]byte{1})
	must(t, err)
	defer b.Close()
	at := netip.AddrPortFrom(b.Endpoint().Addr, b.Endpoint().TCP).String()
	var accepted atomic.Int32
	to := acceptWith(t, func(c net.Conn) {
		if accepted.Add(1) <= 8 {
			return
		}
		real, err := net.Dial("tcp", at)
		if err != nil {
			return
		}
		defer real.Close()
		go func() {
			_, _ = io.Copy(real, c)
			_ = real.(*net.TCPConn).CloseWrite()
		}()
		_, _ = io.Copy(c, real)
	})
	to.ID = b.Endpoint().ID
	var r Result
	for again := true; again; again = r.Bound.Outcome == TimedOut || r.Bare.Outcome == TimedOut {
		r = a.Probe(t.Context(), to, DefaultTimeout)
	}
	if !r.OK() || !r.Bare.works() {
		t.Errorf("after %d connections: %+v", accepted.Load(), r)
	}
}

// TestClosedConnectionsAreNotADuplicateAddress checks that connections that always end without an
// answer are not evidence of another machine.
func TestClosedConnectionsAreNotADuplicateAddress(t *testing.T) {
	a, err := Listen(t.Context(), "a", loopback(t, 1), [32]byte{1})
	must(t, err)
	defer a.Close()
	to := acceptWith(t, func(net.Conn) {})
	r := a.Probe(t.Context(), to, 300*time.Millisecond)
	if o := r.Bound.Outcome; r.OK() || o != Reset && o != TimedOut {
		t.Errorf("%+v", r.Bound)
	}
	for _, f := range Diagnose([]Report{a.Report([]Result{r}), {Endpoint: to}}) {
		if f.Cause == DuplicateAddress {
			t.Errorf("found %v", f)
		}
	}
}

// TestOtherHost checks that a listener that replaced another one is reported as another host.
func TestOtherHost(t *testing.T) {
	a, err := Listen(t.Context(), "a", loopback(t, 1), [32]byte{1})
	must(t, err)
	defer a.Close()
	b, err := Listen(t.Context(), "b", loopback(t, 2), [32]byte{1})
	must(t, err)
	defer b.Close()
	c, err := Listen(t.Context(), "c", loopback(t, 3), [32]byte{1})
	must(t, err)
	defer c.Close()
	claimed := b.Endpoint()
	claimed.Addr, claimed.TCP, claimed.UDP = c.Endpoint().Addr, c.Endpoint().TCP, c.Endpoint().UDP
	r := a.Probe(t.Context(), claimed, busyTimeout)
	if r.Bound.Outcome != OtherHost || r.Bound.By != c.Endpoint().ID || r.Bound.ByHost != "c" || r.Path.Small {
		t.Errorf("%+v", r)
	}
	f := Diagnose([]Report{a.Report([]Result{r}), b.Report(nil), c.Report(nil)})
	if len(f) == 0 || !strings.Contains(f[0].Error(), "c (lo, 127.0.0.3) answers") {
		t.Errorf("found %v", f)
	}
}

// TestProbeIsBounded checks that a peer that accepts and then sends nothing does not block the
// job.
func TestProbeIsBounded(t *testing.T) {
	a, err := Listen(t.Context(), "a", loopback(t, 1), [32]byte{1})
	must(t, err)
	defer a.Close()
	mute, err := net.Listen("tcp", "127.0.0.2:0")
	must(t, err)
	defer mute.Close()
	peer := Endpoint{Host: "b", Interface: "lo", Addr: netip.MustParseAddr("127.0.0.2"), MTU: 1500, ID: newID(), TCP: uint16(mute.Addr().(*net.TCPAddr).Port), UDP: 9}
	r := a.Probe(t.Context(), peer, busyTimeout)
	if r.Bound.Stage != StageGreet || r.Bound.Outcome != TimedOut || r.Took > 20*time.Second {
		t.Errorf("%+v", r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := a.Probe(ctx, peer, DefaultTimeout); r.OK() {
		t.Errorf("works though it was called off: %+v", r)
	}
}

// TestListenFails checks the error for an address that this host does not have, and that a
// listener closes with its context.
func TestListenFails(t *testing.T) {
	c := loopback(t, 1)
	c.Interface, c.Addr = "hsn0", netip.MustParseAddr("192.0.2.1")
	_, err := Listen(t.Context(), "n1", c, [32]byte{})
	if err == nil || !strings.Contains(err.Error(), "n1 cannot listen on hsn0 (192.0.2.1): ") {
		t.Fatalf("got %v", err)
	}
	if h, ok := err.(interface{ Hint() string }); !ok || !strings.Contains(h.Hint(), "ip addr") {
		t.Errorf("no hint: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	l, err := Listen(ctx, "n1", loopback(t, 1), [32]byte{})
	must(t, err)
	cancel()
	for !l.isClosed() {
		time.Sleep(time.Millisecond)
	}
	l.Close()
}
