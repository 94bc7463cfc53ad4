package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// TestMain gives the tests a user namespace in which they are root, where they
// are not root already and the system lets them.
func TestMain(m *testing.M) {
	const inside = "DDPBATCH_TEST_USERNS"
	if os.Geteuid() == 0 || os.Getenv(inside) != "" {
		os.Exit(m.Run())
	}
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	err := cmd.Start()
	if err != nil { // user namespaces are switched off
		os.Exit(m.Run())
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	}
	os.Exit(0)
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatal("making network namespaces needs root or user namespaces")
	}
	t.Skip("making network namespaces needs root or user namespaces")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// inSpace runs f on a thread in a network namespace of its own.
func inSpace(t *testing.T, f func(nl *netlink.Handle) error) *netlink.Handle {
	t.Helper()
	var nl *netlink.Handle
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		ns, err := netns.New()
		if err == nil {
			defer ns.Close()
			nl, err = netlink.NewHandleAt(ns)
		}
		if err == nil {
			err = f(nl)
		}
		done <- err
	}()
	must(t, <-done)
	t.Cleanup(nl.Close)
	return nl
}

// bench is a watched veth called hsn0 whose other end is sw0.
type bench struct {
	t      *testing.T
	nl     *netlink.Handle
	events chan Event
	w      *Watcher
	cancel context.CancelFunc
}

func newBench(t *testing.T, buffer int, report func(Event)) *bench {
	t.Helper()
	needRoot(t)
	b := &bench{t: t, events: make(chan Event, 4096)}
	ctx, cancel := context.WithCancel(t.Context())
	b.cancel = cancel
	if report == nil {
		report = func(e Event) { b.events <- e }
	}
	b.nl = inSpace(t, func(nl *netlink.Handle) error {
		b.nl = nl
		b.veth("hsn0", 9000)
		b.addr("hsn0", "10.2.0.1/24")
		var err error
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

func (b *bench) link(name string) netlink.Link {
	b.t.Helper()
	l, err := b.nl.LinkByName(name)
	must(b.t, err)
	return l
}

func (b *bench) veth(name string, mtu int) {
	b.t.Helper()
	must(b.t, b.nl.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, MTU: mtu}, PeerName: "sw0"}))
	must(b.t, b.nl.LinkSetUp(b.link(name)))
	must(b.t, b.nl.LinkSetUp(b.link("sw0")))
}

func (b *bench) addr(name, prefix string) {
	b.t.Helper()
	a, err := netlink.ParseAddr(prefix)
	must(b.t, err)
	must(b.t, b.nl.AddrAdd(b.link(name), a))
}

// expect waits until all of the words were told, in this order and nothing else:
// not what the kernel does by itself, such as link-local addresses.
func (b *bench) expect(words ...string) {
	b.t.Helper()
	var seen []string
	deadline := time.After(20 * time.Second)
	for _, want := range words {
		var e Event
		select {
		case e = <-b.events:
		case <-deadline:
			b.t.Fatalf("not told %q, only %q", want, seen)
		}
		if seen = append(seen, e.What); e.What != want {
			b.t.Fatalf("told %q, want %q", seen, want)
		}
		if e.Time.IsZero() || e.Interface != "hsn0" {
			b.t.Errorf("%q is told of %q at %s", want, e.Interface, e.Time)
		}
	}
}

// returns waits for the interface to come back and, then or later, for its
// address: the state that is read when it appears may already have that.
func (b *bench) returns(addr string) {
	b.t.Helper()
	var seen []string
	deadline := time.After(20 * time.Second)
	for {
		select {
		case e := <-b.events:
			seen = append(seen, e.What)
			if !strings.HasPrefix(seen[0], "interface is back: ") {
				b.t.Fatalf("told %q, want that it is back", seen)
			}
			if strings.Contains(e.What, addr) {
				return
			}
		case <-deadline:
			b.t.Fatalf("not told of %s, only %q", addr, seen)
		}
	}
}

func TestWatchTells(t *testing.T) {
	b := newBench(t, bufferBytes, nil)
	hsn := b.link("hsn0")

	must(t, b.nl.LinkSetMTU(hsn, 1500))
	b.expect("mtu changed from 9000 to 1500")
	must(t, b.nl.LinkSetDown(b.link("sw0")))
	b.expect("carrier lost")
	must(t, b.nl.LinkSetUp(b.link("sw0")))
	b.expect("carrier is back")
	b.addr("hsn0", "10.2.0.7/24")
	b.expect("address 10.2.0.7/24 added")
	addr, err := netlink.ParseAddr("10.2.0.7/24")
	must(t, err)
	must(t, b.nl.AddrDel(hsn, addr))
	b.expect("address 10.2.0.7/24 removed")
	must(t, b.nl.LinkSetDown(hsn))
	b.expect("link down")

	// Changes of other links are nobody's business.
	must(t, b.nl.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}))
	b.addr("br0", "10.9.0.1/24")
	must(t, b.nl.LinkSetMaster(hsn, b.link("br0")))
	b.expect(fmt.Sprintf("became a part of interface %d", b.link("br0").Attrs().Index))
	must(t, b.nl.LinkSetNoMaster(hsn)) // its RTM_DELLINK of the bridge is no end of hsn0
	b.expect(fmt.Sprintf("is no longer a part of interface %d", b.link("br0").Attrs().Index))

	must(t, b.nl.LinkDel(hsn))
	b.expect("address 10.2.0.1/24 removed", "interface gone")
	b.veth("hsn0", 4000)
	b.addr("hsn0", "10.2.0.1/24")
	b.returns("10.2.0.1/24")
}

// An IPv6 address counts when the kernel has made sure that no one else has it.
func TestWatchIPv6(t *testing.T) {
	b := newBench(t, bufferBytes, nil)
	b.addr("hsn0", "fd00::1/64")
	b.expect("address fd00::1/64 added")
	must(t, b.nl.LinkSetDown(b.link("hsn0"))) // takes the address away
	b.expect("link down", "address fd00::1/64 removed")
}

// What the kernel had to drop because nobody read it is found by a dump.
func TestWatchOverflow(t *testing.T) {
	release := make(chan struct{})
	events := make(chan Event, 65536)
	b := newBench(t, 1, func(e Event) { // the kernel's least buffer
		events <- e
		<-release
	})
	hsn := b.link("hsn0")
	for i := range 200 { // far more than the buffer holds
		must(t, b.nl.LinkSetMTU(hsn, 2000+i))
	}
	must(t, b.nl.LinkSetMTU(hsn, 1500))
	close(release)
	deadline := time.After(20 * time.Second)
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
	// It goes on after that.
	must(t, b.nl.LinkSetMTU(hsn, 1600))
	b.events = events
	b.expect("mtu changed from 1500 to 1600")
}

func TestWatchEnds(t *testing.T) {
	b := newBench(t, bufferBytes, nil)
	b.cancel()
	ended := make(chan error)
	go func() { ended <- b.w.Wait() }()
	select {
	case err := <-ended:
		must(t, err)
	case <-time.After(20 * time.Second):
		t.Fatal("goes on after its context has ended")
	}
}

func TestWatchUnknown(t *testing.T) {
	_, err := Watch(t.Context(), "nosuch0", func(Event) {})
	if want := `watching interface "nosuch0": there is no interface of that name`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
