// Package netspace gives tests network namespaces of their own, in which they are root:
// [Main] runs a package's tests in a user namespace where the caller is not root already.
// A [Space] and what is in it end with the test that made it. It is for tests only: every
// method fails the test at once where the kernel refuses.
package netspace

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// inside is set in the process that runs in a user namespace.
const inside = "DDPBATCH_TEST_USERNS"

// Main is a TestMain. It returns the exit status.
func Main(m *testing.M) int {
	if os.Getenv(inside) != "" {
		if lo, err := netlink.LinkByName("lo"); err == nil { // a new one is down
			_ = netlink.LinkSetUp(lo)
		}
		return m.Run()
	}
	if os.Geteuid() == 0 {
		return m.Run()
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
	}
	if err := cmd.Start(); err != nil { // user namespaces are switched off: see Need
		return m.Run()
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); errors.As(err, &exit) {
		return exit.ExitCode()
	} else if err != nil {
		return 1
	}
	return 0
}

// Need leaves a test out where it may not make namespaces; where all must run, that is
// a failure.
func Need(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	const why = "making network namespaces needs root, or user namespaces"
	if os.Getenv("CI") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// Space is a network namespace with nothing but a loopback, which is up.
type Space struct {
	T  testing.TB
	NS netns.NsHandle
	NL *netlink.Handle
}

// New makes a space until the test ends.
func New(t testing.TB) *Space {
	t.Helper()
	Need(t)
	s := &Space{T: t}
	s.must(onThread(func() (err error) {
		s.NS, err = netns.New()
		return err
	}))
	var err error
	s.NL, err = netlink.NewHandleAt(s.NS)
	s.must(err)
	t.Cleanup(func() { s.NL.Close(); s.NS.Close() })
	s.Up("lo")
	return s
}

// onThread runs f on a thread that ends with it, and with it its namespace.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- f()
	}()
	return <-done
}

func (s *Space) must(err error) {
	s.T.Helper()
	if err != nil {
		s.T.Fatal(err)
	}
}

// Do runs f on a thread inside the namespace. Processes that it starts are inside, too.
func (s *Space) Do(f func() error) {
	s.T.Helper()
	s.must(onThread(func() error {
		if err := netns.Set(s.NS); err != nil {
			return err
		}
		return f()
	}))
}

// Link is the link of that name.
func (s *Space) Link(name string) netlink.Link {
	s.T.Helper()
	l, err := s.NL.LinkByName(name)
	s.must(err)
	return l
}

// Up switches a link on.
func (s *Space) Up(name string) { s.T.Helper(); s.must(s.NL.LinkSetUp(s.Link(name))) }

// Down switches a link off.
func (s *Space) Down(name string) { s.T.Helper(); s.must(s.NL.LinkSetDown(s.Link(name))) }

// Addr gives a link an address, an IPv6 one without the wait of duplicate address
// detection, and switches it on.
func (s *Space) Addr(name, prefix string) {
	s.T.Helper()
	a, err := netlink.ParseAddr(prefix)
	s.must(err)
	if a.IP.To4() == nil {
		a.Flags = unix.IFA_F_NODAD
	}
	s.must(s.NL.AddrAdd(s.Link(name), a))
	s.Up(name)
}

// Bridge makes a bridge that is up.
func (s *Space) Bridge(name string) {
	s.T.Helper()
	s.must(s.NL.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}))
	s.Up(name)
}

// Plug joins a link called name of node with one called port of this space, which a
// bridge takes if one is named. The node's stays down.
func (s *Space) Plug(node *Space, bridge, name, port string, mtu int) {
	s.T.Helper()
	attrs := netlink.LinkAttrs{Name: port, MTU: mtu}
	if bridge != "" {
		attrs.MasterIndex = s.Link(bridge).Attrs().Index
	}
	s.must(s.NL.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: name, PeerNamespace: netlink.NsFd(node.NS)}))
	s.Up(port)
	s.must(node.NL.LinkSetMTU(node.Link(name), mtu))
}

// Route appends a route to dst, over dev if it is named.
func (s *Space) Route(r netlink.Route, dst, dev string) {
	s.T.Helper()
	_, to, err := net.ParseCIDR(dst)
	s.must(err)
	r.Dst = to
	if dev != "" {
		r.LinkIndex = s.Link(dev).Attrs().Index
	}
	s.must(s.NL.RouteAppend(&r))
}

// Carrier waits until the kernel has noticed whether a link has one, which may take a
// moment, on a busy machine a second.
func (s *Space) Carrier(name string, want bool) {
	s.T.Helper()
	for end := time.Now().Add(20 * time.Second); (s.Link(name).Attrs().OperState == netlink.OperUp) != want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.T.Fatalf("%s is %s", name, s.Link(name).Attrs().OperState)
		}
	}
}
