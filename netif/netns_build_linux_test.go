package netif

import (
	"bytes"
	"net"
	"net/netip"
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

// asRoot says whether this process may make network namespaces. If it may not,
// the test runs again in a user namespace, where it may, and the caller ends. Only
// where the kernel refuses that too is the test left out, but not where all must run.
func asRoot(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() == 0 {
		return true
	}
	again := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	again.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	var out bytes.Buffer
	again.Stdout, again.Stderr = &out, &out
	if err := again.Start(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("making network namespaces needs root, or user namespaces: %v", err)
		}
		t.Skipf("making network namespaces needs root, or user namespaces: %v", err)
	}
	if err := again.Wait(); err != nil || !strings.Contains(out.String(), "--- PASS: "+t.Name()) {
		t.Errorf("in a user namespace: %v\n%s", err, out.String())
	}
	return false
}

// space is a network namespace of its own, with nothing but a loopback.
type space struct {
	t  *testing.T
	ns netns.NsHandle
	nl *netlink.Handle
}

func newSpace(t *testing.T) *space {
	t.Helper()
	s := &space{t: t}
	must(t, onThread(func() error {
		var err error
		s.ns, err = netns.New()
		return err
	}))
	var err error
	s.nl, err = netlink.NewHandleAt(s.ns)
	must(t, err)
	t.Cleanup(func() { s.nl.Close(); s.ns.Close() })
	s.up("lo")
	return s
}

// onThread runs f on a thread that ends with it, and with it its namespace.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

// do runs f inside the namespace.
func (s *space) do(f func() error) {
	s.t.Helper()
	must(s.t, onThread(func() error {
		if err := netns.Set(s.ns); err != nil {
			return err
		}
		return f()
	}))
}

func (s *space) link(name string) netlink.Link {
	s.t.Helper()
	l, err := s.nl.LinkByName(name)
	must(s.t, err)
	return l
}

func (s *space) up(name string)   { s.t.Helper(); must(s.t, s.nl.LinkSetUp(s.link(name))) }
func (s *space) down(name string) { s.t.Helper(); must(s.t, s.nl.LinkSetDown(s.link(name))) }

// addr gives a link an address and switches it on.
func (s *space) addr(name, prefix string) {
	s.t.Helper()
	a, err := netlink.ParseAddr(prefix)
	must(s.t, err)
	must(s.t, s.nl.AddrAdd(s.link(name), a))
	s.up(name)
}

func (s *space) bridge(name string) {
	s.t.Helper()
	must(s.t, s.nl.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}))
	s.up(name)
}

// plug puts one end of a veth into the bridge and the other, called name, into node.
func (s *space) plug(node *space, bridge, name, port string, mtu int) {
	s.t.Helper()
	must(s.t, s.nl.LinkAdd(&netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: port, MTU: mtu, MasterIndex: s.link(bridge).Attrs().Index},
		PeerName:      name,
		PeerNamespace: netlink.NsFd(node.ns),
	}))
	s.up(port)
	must(s.t, node.nl.LinkSetMTU(node.link(name), mtu))
}

func (s *space) route(r netlink.Route, dst, dev string) {
	s.t.Helper()
	_, to, err := net.ParseCIDR(dst)
	must(s.t, err)
	r.Dst = to
	if dev != "" {
		r.LinkIndex = s.link(dev).Attrs().Index
	}
	must(s.t, s.nl.RouteAppend(&r))
}

func (s *space) collect(host string) Inventory {
	s.t.Helper()
	var inv Inventory
	s.do(func() (err error) {
		inv, err = Collect(s.t.Context(), CollectOptions{})
		return err
	})
	inv.Host = host
	return inv
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// talk sends one byte between two addresses.
func talk(t *testing.T, from, to *space, src, dst netip.Addr) {
	t.Helper()
	var ln net.Listener
	to.do(func() (err error) {
		ln, err = net.Listen("tcp", netip.AddrPortFrom(dst, 0).String())
		return err
	})
	defer ln.Close()
	from.do(func() error {
		d := net.Dialer{Timeout: 5 * time.Second, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(src, 0))}
		conn, err := d.Dial("tcp", ln.Addr().String())
		if err != nil {
			return err
		}
		return conn.Close()
	})
}
