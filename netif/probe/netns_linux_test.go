package probe

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/netif"
)

const (
	envInside = "DDPBATCH_TEST_USERNS"
	envNode   = "DDPBATCH_TEST_NODE"
)

// TestMain also serves as a node of a test. Tests that are not root get a user
// namespace in which they are, where the system lets them.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv(envNode) != "":
		if err := serveNode(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case os.Getenv(envInside) != "":
		if lo, err := netlink.LinkByName("lo"); err == nil { // a new one is down
			_ = netlink.LinkSetUp(lo)
		}
		os.Exit(m.Run())
	case os.Geteuid() == 0:
		os.Exit(m.Run())
	}
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Env = append(os.Environ(), envInside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	if err := cmd.Start(); err != nil { // user namespaces are switched off
		os.Exit(m.Run())
	}
	var exit *exec.ExitError
	if errors.As(cmd.Wait(), &exit) {
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

// space is a network namespace.
type space struct {
	t    *testing.T
	name string
	ns   netns.NsHandle
	nl   *netlink.Handle
	node *node
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

func newSpace(t *testing.T, name string) *space {
	t.Helper()
	needRoot(t)
	s := &space{t: t, name: name}
	must(t, onThread(func() (err error) {
		s.ns, err = netns.New()
		return err
	}))
	var err error
	s.nl, err = netlink.NewHandleAt(s.ns)
	must(t, err)
	t.Cleanup(func() { s.nl.Close(); s.ns.Close() })
	must(t, s.nl.LinkSetUp(s.link("lo")))
	return s
}

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

func (s *space) down(name string) { s.t.Helper(); must(s.t, s.nl.LinkSetDown(s.link(name))) }

// addr gives a link an address, without the wait of duplicate address detection,
// and switches it on.
func (s *space) addr(name, prefix string) {
	s.t.Helper()
	a, err := netlink.ParseAddr(prefix)
	must(s.t, err)
	if a.IP.To4() == nil {
		a.Flags = unix.IFA_F_NODAD
	}
	must(s.t, s.nl.AddrAdd(s.link(name), a))
	must(s.t, s.nl.LinkSetUp(s.link(name)))
}

func (s *space) bridge(name string) {
	s.t.Helper()
	must(s.t, s.nl.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}))
	must(s.t, s.nl.LinkSetUp(s.link(name)))
}

// wire joins a link of this space with one of another; a bridge may take its end.
// The first one's offloads are off, so that its packets are as large on the wire
// as they are on one.
func (s *space) wire(name string, other *space, otherName, bridge string, mtu int) {
	s.t.Helper()
	must(s.t, other.nl.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: otherName, MTU: mtu}, PeerName: name, PeerNamespace: netlink.NsFd(s.ns),
	}))
	if bridge != "" {
		must(s.t, other.nl.LinkSetMaster(other.link(otherName), other.link(bridge)))
	}
	must(s.t, other.nl.LinkSetUp(other.link(otherName)))
	must(s.t, s.nl.LinkSetMTU(s.link(name), mtu))
	must(s.t, s.nl.LinkSetUp(s.link(name)))
	s.do(func() error { return segment(name) })
}

// segment switches segmentation by the (virtual) hardware off.
func segment(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	value := struct{ cmd, data uint32 }{cmd: unix.ETHTOOL_STSO}
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&value)}
	copy(request.name[:], name)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return fmt.Errorf("switching segmentation of %s off: %w", name, errno)
	}
	return nil
}

func (s *space) route(r netlink.Route, dst string) {
	s.t.Helper()
	_, to, err := net.ParseCIDR(dst)
	must(s.t, err)
	r.Dst = to
	must(s.t, s.nl.RouteAdd(&r))
}

func (s *space) via(dst, gateway string) {
	s.t.Helper()
	s.route(netlink.Route{Gw: net.ParseIP(gateway)}, dst)
}

func (s *space) sysctl(name, value string) {
	s.t.Helper()
	s.do(func() error { return os.WriteFile("/proc/sys/net/"+name, []byte(value), 0) })
}

// node is a process in a space that listens and probes.
type node struct {
	in  io.WriteCloser
	out *bufio.Reader
}

// order is what a node is told to do. Its answer has the same form.
type order struct {
	Listen *orderListen `json:",omitempty"`
	Probe  []Endpoint   `json:",omitempty"`

	Endpoint *Endpoint `json:",omitempty"`
	Report   *Report   `json:",omitempty"`
	Error    string    `json:",omitempty"`
}

type orderListen struct {
	Host, Interface string
	Addr            netip.Prefix
	Secret          byte
	Port            uint16
}

func serveNode(in io.Reader, out io.Writer) error {
	dec, enc := json.NewDecoder(in), json.NewEncoder(out)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var l *Listener
	for {
		var o, a order
		if err := dec.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		switch {
		case o.Listen != nil:
			link, err := net.InterfaceByName(o.Listen.Interface)
			if err != nil {
				return err
			}
			choice := netif.Choice{
				Interface: link.Name, Index: link.Index, Addr: o.Listen.Addr.Addr(), Prefix: o.Listen.Addr.Masked(), MTU: link.MTU,
			}
			var e Endpoint
			if l, err = listen(ctx, o.Listen.Host, choice, [32]byte{o.Listen.Secret}, o.Listen.Port); err != nil {
				e = Unable(o.Listen.Host, choice, err)
			} else {
				e = l.Endpoint()
			}
			a.Endpoint = &e
		case l == nil:
			a.Error = "does not listen"
		default:
			results := make([]Result, len(o.Probe))
			for i, peer := range o.Probe {
				results[i] = l.Probe(ctx, peer, Options{})
			}
			r := l.Report(results)
			a.Report = &r
		}
		if err := enc.Encode(a); err != nil {
			return err
		}
	}
}

// start starts the node of a space. The child inherits the thread's namespace.
func (s *space) start() {
	s.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envNode+"="+s.name)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(s.t, err)
	out, err := cmd.StdoutPipe()
	must(s.t, err)
	s.do(cmd.Start)
	s.t.Cleanup(func() { in.Close(); cmd.Wait() })
	s.node = &node{in: in, out: bufio.NewReader(out)}
}

func (n *node) tell(o order) (a order, err error) {
	if err := json.NewEncoder(n.in).Encode(o); err != nil {
		return a, err
	}
	line, err := n.out.ReadBytes('\n')
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(line, &a); err != nil {
		return a, err
	}
	if a.Error != "" {
		return a, errors.New(a.Error)
	}
	return a, nil
}

// listen starts the node and has it listen.
func (s *space) listen(o orderListen) Endpoint {
	s.t.Helper()
	s.start()
	o.Host = s.name
	a, err := s.node.tell(order{Listen: &o})
	must(s.t, err)
	return *a.Endpoint
}

// on is a listener on an interface with the job's secret.
func (s *space) on(name, addr string) Endpoint {
	s.t.Helper()
	return s.listen(orderListen{Interface: name, Addr: netip.MustParsePrefix(addr), Secret: 1})
}

// ring has all spaces probe their neighbours at the same time.
func ring(t *testing.T, spaces []*space, endpoints []Endpoint) []Report {
	t.Helper()
	reports := make([]Report, len(spaces))
	errs := make(chan error)
	for i, s := range spaces {
		go func() {
			a, err := s.node.tell(order{Probe: Neighbours(endpoints, i)})
			if err == nil {
				reports[i] = *a.Report
			}
			errs <- err
		}()
	}
	for range spaces {
		must(t, <-errs)
	}
	for _, r := range reports {
		for _, x := range r.Results {
			t.Logf("%s to %s: bound %s %s, bare %s, device %s, path %+v, kernel %+v, %q, %s", x.From.Host, x.To.Host,
				x.Bound.Stage, x.Bound.Outcome, x.Bare.Outcome, x.Device.Outcome, x.Path, x.Kernel, x.Local, x.Took)
		}
	}
	return reports
}
