// Package netspace gives tests separate network namespaces, in which they are root. [Main]
// runs a package's tests in a user namespace if the caller is not root. A [Space] and its
// links exist until the test that created it ends. The package is for tests only: every method
// fails the test immediately if the kernel returns an error, and does not return one.
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

// inside is set in the environment of the process that runs in a user namespace.
const inside = "DDPBATCH_TEST_USERNS"

// Main runs the tests of a package, for use in TestMain. It returns the exit status.
func Main(m *testing.M) int {
	if os.Getenv(inside) != "" {
		if lo, err := netlink.LinkByName("lo"); err == nil { // down in a new namespace
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
	if err := cmd.Start(); err != nil { // user namespaces are disabled: see Need
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

// Need skips a test that has no permission to create namespaces. In CI, where all tests must
// run, it fails the test.
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

// A Space is a network namespace. Initially it contains only a loopback, which is up.
type Space struct {
	T  testing.TB
	NS netns.NsHandle
	NL *netlink.Handle
}

// New creates a space that exists until the test ends.
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

// onThread runs f on a separate thread. The thread and its namespace end with f.
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

// Do runs f on a thread inside the namespace. Processes that f starts are also inside.
func (s *Space) Do(f func() error) {
	s.T.Helper()
	s.must(onThread(func() error {
		if err := netns.Set(s.NS); err != nil {
			return err
		}
		return f()
	}))
}

// Link returns the link with the given name.
func (s *Space) Link(name string) netlink.Link {
	s.T.Helper()
	l, err := s.NL.LinkByName(name)
	s.must(err)
	return l
}

// Up sets a link up.
func (s *Space) Up(name string) { s.T.Helper(); s.must(s.NL.LinkSetUp(s.Link(name))) }

// Down sets a link down.
func (s *Space) Down(name string) { s.T.Helper(); s.must(s.NL.LinkSetDown(s.Link(name))) }

// Addr adds an address to a link and sets the link up. An IPv6 address is usable immediately,
// without duplicate address detection.
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

// Bridge creates a bridge that is up.
func (s *Space) Bridge(name string) {
	s.T.Helper()
	s.must(s.NL.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}))
	s.Up(name)
}

// Plug connects a link called name of node to a link called port of this space. If bridge is
// set, port becomes a port of it. The node's link stays down.
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

// Route appends a route to dst, over dev if it is not empty.
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

// Carrier waits until the kernel has detected whether a link has a carrier. On a busy machine
// this can take a second.
func (s *Space) Carrier(name string, want bool) {
	s.T.Helper()
	for end := time.Now().Add(20 * time.Second); (s.Link(name).Attrs().OperState == netlink.OperUp) != want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.T.Fatalf("%s is %s", name, s.Link(name).Attrs().OperState)
		}
	}
}
