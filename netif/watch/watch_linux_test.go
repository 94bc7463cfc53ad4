package watch

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/ddpbatch/ddpbatch/netif/internal/netspace"
)

// TestMain runs the tests as root in network namespaces.
func TestMain(m *testing.M) { os.Exit(netspace.Main(m)) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A bench is a watched veth called hsn0 whose other end is sw0.
type bench struct {
	*netspace.Space
	events chan Event
	w      *Watcher
	cancel context.CancelFunc
}

func newBench(t *testing.T, buffer int, report func(Event)) *bench {
	t.Helper()
	b := &bench{Space: netspace.New(t), events: make(chan Event, 4096)}
	ctx, cancel := context.WithCancel(t.Context())
	b.cancel = cancel
	if report == nil {
		report = func(e Event) { b.events <- e }
	}
	b.veth("hsn0", 9000)
	b.addr("hsn0", "10.2.0.1/24")
	b.Do(func() (err error) {
		b.w, err = start(ctx, "hsn0", buffer, report)
		return err
	})
	t.Cleanup(func() {
		cancel()
		if err := b.w.Wait(); err != nil {
			t.Errorf("ended with %v", err)
		}
	})
	return b
}

func (b *bench) veth(name string, mtu int) {
	b.T.Helper()
	must(b.T, b.NL.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, MTU: mtu}, PeerName: "sw0"}))
	b.Up(name)
	b.Up("sw0")
}

// addr adds an address to a link. IPv6 addresses go through duplicate address detection.
func (b *bench) addr(name, prefix string) {
	b.T.Helper()
	a, err := netlink.ParseAddr(prefix)
	must(b.T, err)
	must(b.T, b.NL.AddrAdd(b.Link(name), a))
}

// expect waits until exactly these events were reported, in this order. Automatic changes by
// the kernel, such as link-local addresses, must not be reported.
func (b *bench) expect(words ...string) {
	b.T.Helper()
	var seen []string
	deadline := time.After(time.Minute)
	for _, want := range words {
		var e Event
		select {
		case e = <-b.events:
		case <-deadline:
			b.T.Fatalf("not told %q, only %q", want, seen)
		}
		if seen = append(seen, e.What); e.What != want {
			b.T.Fatalf("told %q, want %q", seen, want)
		}
		if e.Time.IsZero() || e.Interface != "hsn0" {
			b.T.Errorf("%q is told of %q at %s", want, e.Interface, e.Time)
		}
	}
}

// returns waits until the interface and its address are back. The address may be part of the
// first state that is read, or be reported later.
func (b *bench) returns(addr string) {
	b.T.Helper()
	var seen []string
	deadline := time.After(time.Minute)
	for {
		select {
		case e := <-b.events:
			seen = append(seen, e.What)
			if !strings.HasPrefix(seen[0], "interface is back: ") {
				b.T.Fatalf("told %q, want that it is back", seen)
			}
			if strings.Contains(e.What, addr) {
				return
			}
		case <-deadline:
			b.T.Fatalf("not told of %s, only %q", addr, seen)
		}
	}
}

// TestWatchTells checks the events for changes of a real interface.
func TestWatchTells(t *testing.T) {
	b := newBench(t, bufferBytes, nil)
	hsn := b.Link("hsn0")

	must(t, b.NL.LinkSetMTU(hsn, 1500))
	b.expect("mtu changed from 9000 to 1500")
	must(t, b.NL.LinkSetDown(b.Link("sw0")))
	b.expect("carrier lost")
	must(t, b.NL.LinkSetUp(b.Link("sw0")))
	b.expect("carrier is back")
	b.addr("hsn0", "10.2.0.7/24")
	b.expect("address 10.2.0.7/24 added")
	addr, err := netlink.ParseAddr("10.2.0.7/24")
	must(t, err)
	must(t, b.NL.AddrDel(hsn, addr))
	b.expect("address 10.2.0.7/24 removed")
	must(t, b.NL.LinkSetDown(hsn))
	b.expect("link down")

	// Changes of other links are not reported.
	must(t, b.NL.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}))
	b.addr("br0", "10.9.0.1/24")
	must(t, b.NL.LinkSetMaster(hsn, b.Link("br0")))
	b.expect(fmt.Sprintf("became a part of interface %d", b.Link("br0").Attrs().Index))
	must(t, b.NL.LinkSetNoMaster(hsn)) // its RTM_DELLINK from the bridge does not mean that hsn0 is gone
	b.expect(fmt.Sprintf("is no longer a part of interface %d", b.Link("br0").Attrs().Index))

	must(t, b.NL.LinkDel(hsn))
	b.expect("address 10.2.0.1/24 removed", "interface gone")
	b.veth("hsn0", 4000)
	b.addr("hsn0", "10.2.0.1/24")
	b.returns("10.2.0.1/24")
}

// TestWatchIPv6 checks that an IPv6 address counts after duplicate address detection.
func TestWatchIPv6(t *testing.T) {
	b := newBench(t, bufferBytes, nil)
	b.addr("hsn0", "fd00::1/64")
	b.expect("address fd00::1/64 added")
	must(t, b.NL.LinkSetDown(b.Link("hsn0"))) // removes the address
	b.expect("link down", "address fd00::1/64 removed")
}

// TestWatchOverflow checks that a dump finds the changes whose notifications the kernel dropped
// because the queue was full.
func TestWatchOverflow(t *testing.T) {
	release := make(chan struct{})
	events := make(chan Event, 65536)
	b := newBench(t, 1, func(e Event) { // the kernel's minimum buffer
		events <- e
		<-release
	})
	hsn := b.Link("hsn0")
	for i := range 200 { // far more than fit in the buffer
		must(t, b.NL.LinkSetMTU(hsn, 2000+i))
	}
	must(t, b.NL.LinkSetMTU(hsn, 1500))
	close(release)
	deadline := time.After(time.Minute)
	told := 0
	for {
		select {
		case e := <-events:
			if !strings.HasPrefix(e.What, "mtu changed") {
				continue
			}
			if told++; !strings.HasSuffix(e.What, " to 1500") {
				continue
			}
		case <-deadline:
			t.Fatalf("the last change was not told after an overflow; %d others were", told)
		}
		break
	}
	if told > 150 {
		t.Errorf("%d changes were told: nothing overflowed, so the test shows nothing", told)
	}
	// The watch continues after that.
	must(t, b.NL.LinkSetMTU(hsn, 1600))
	b.events = events
	b.expect("mtu changed from 1500 to 1600")
}

// TestWatchEnds checks that a watch ends with its context.
func TestWatchEnds(t *testing.T) {
	b := newBench(t, bufferBytes, nil)
	b.cancel()
	ended := make(chan error)
	go func() { ended <- b.w.Wait() }()
	select {
	case err := <-ended:
		must(t, err)
	case <-time.After(time.Minute):
		t.Fatal("goes on after its context has ended")
	}
}

// TestWatchUnknown checks the error for an interface that does not exist.
func TestWatchUnknown(t *testing.T) {
	_, err := Watch(t.Context(), "nosuch0", func(Event) {})
	if want := `watch interface "nosuch0": no such interface`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
