package probe

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/netif"
)

// loopback is a choice of 127.0.0.n, which needs no privilege.
func loopback(t testing.TB, n int) netif.Choice {
	t.Helper()
	lo, err := net.InterfaceByName("lo")
	must(t, err)
	addr := netip.AddrFrom4([4]byte{127, 0, 0, byte(n)})
	// Hosts have 9000; nothing is gained by more.
	return netif.Choice{Interface: "lo", Index: lo.Index, Addr: addr, Prefix: netip.MustParsePrefix("127.0.0.0/8"), MTU: min(lo.MTU, 9000)}
}

// proveRing is what a job does: all listen, all probe, all report.
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
			peers := Neighbours(endpoints, i)
			results := make([]Result, len(peers))
			var each sync.WaitGroup
			for k, p := range peers {
				each.Go(func() { results[k] = l.Probe(t.Context(), p, Options{}) })
			}
			each.Wait()
			reports[i] = l.Report(results)
		})
	}
	all.Wait()
	return reports, time.Since(start)
}

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

func BenchmarkRing64(b *testing.B) {
	for b.Loop() {
		proveRing(b, 64)
	}
}

// Who does not know the secret gets no answer, and is no answer.
func TestStranger(t *testing.T) {
	a, err := Listen(t.Context(), "a", loopback(t, 1), [32]byte{1})
	must(t, err)
	defer a.Close()
	b, err := Listen(t.Context(), "b", loopback(t, 2), [32]byte{2})
	must(t, err)
	defer b.Close()
	r := a.Probe(t.Context(), b.Endpoint(), Options{Timeout: 600 * time.Millisecond})
	if r.OK() || r.Bound.Outcome != Stranger || r.Bound.Stage != StageGreet || r.Path.Small || r.Path.Up.Passed > 0 {
		t.Errorf("%+v", r)
	}
	if h := b.Report(nil).Heard; len(h) != 0 {
		t.Errorf("heard a stranger: %+v", h)
	}
}

// A listener that has taken another one's place says so.
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
	r := a.Probe(t.Context(), claimed, Options{Timeout: 600 * time.Millisecond})
	if r.Bound.Outcome != OtherHost || r.Bound.By != c.Endpoint().ID || r.Bound.ByHost != "c" || r.Path.Small {
		t.Errorf("%+v", r)
	}
	f := Diagnose([]Report{a.Report([]Result{r}), b.Report(nil), c.Report(nil)})
	if len(f) == 0 || !strings.Contains(f[0].Error(), "c (lo, 127.0.0.3) answers") {
		t.Errorf("found %v", f)
	}
}

// A peer that accepts and then says nothing does not hold the job.
func TestProbeIsBounded(t *testing.T) {
	a, err := Listen(t.Context(), "a", loopback(t, 1), [32]byte{1})
	must(t, err)
	defer a.Close()
	mute, err := net.Listen("tcp", "127.0.0.2:0")
	must(t, err)
	defer mute.Close()
	peer := Endpoint{Host: "b", Interface: "lo", Addr: netip.MustParseAddr("127.0.0.2"), MTU: 1500, ID: newID(), TCP: uint16(mute.Addr().(*net.TCPAddr).Port), UDP: 9}
	r := a.Probe(t.Context(), peer, Options{Timeout: 300 * time.Millisecond})
	if r.Bound.Stage != StageGreet || r.Bound.Outcome != TimedOut || r.Took > 20*time.Second {
		t.Errorf("%+v", r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := a.Probe(ctx, peer, Options{}); r.OK() {
		t.Errorf("works though it was called off: %+v", r)
	}
}

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
