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
	"testing"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/netif"
	"github.com/ddpbatch/ddpbatch/netif/internal/netspace"
)

// envNode makes a process of this binary a node of a test.
const envNode = "DDPBATCH_TEST_NODE"

// TestMain runs the tests as root in network namespaces. It also runs the nodes.
func TestMain(m *testing.M) {
	if os.Getenv(envNode) != "" {
		if err := serveNode(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(netspace.Main(m))
}

// A space is a network namespace for a node.
type space struct {
	*netspace.Space
	name string
	node *node
}

func newSpace(t *testing.T, name string) *space {
	t.Helper()
	return &space{Space: netspace.New(t), name: name}
}

// wire connects a link of this space to a link of another space. The other end can be a port
// of a bridge. It turns off offloads on the first link, so that its packets have the size that
// they would have on a wire.
func (s *space) wire(name string, other *space, otherName, bridge string, mtu int) {
	s.T.Helper()
	other.Plug(s.Space, bridge, name, otherName, mtu)
	s.Up(name)
	s.Do(func() error { return segment(name) })
	s.Carrier(name, true)
	other.Carrier(otherName, true)
}

// segment turns off segmentation offload.
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

func (s *space) via(dst, gateway string) {
	s.T.Helper()
	s.Route(netlink.Route{Gw: net.ParseIP(gateway)}, dst, "")
}

func (s *space) sysctl(name, value string) {
	s.T.Helper()
	s.Do(func() error { return os.WriteFile("/proc/sys/net/"+name, []byte(value), 0) })
}

// A node is a process in a space that listens and probes.
type node struct {
	in  io.WriteCloser
	out *bufio.Reader
}

// An order is a command to a node. Its answer has the same form.
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
				results[i] = l.Probe(ctx, peer, DefaultTimeout)
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
	s.T.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envNode+"="+s.name)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(s.T, err)
	out, err := cmd.StdoutPipe()
	must(s.T, err)
	s.Do(cmd.Start)
	s.T.Cleanup(func() { in.Close(); cmd.Wait() })
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

// listen starts the node and makes it listen.
func (s *space) listen(o orderListen) Endpoint {
	s.T.Helper()
	s.start()
	o.Host = s.name
	a, err := s.node.tell(order{Listen: &o})
	must(s.T, err)
	return *a.Endpoint
}

// on returns a listener on an interface with the job's secret.
func (s *space) on(name, addr string) Endpoint {
	s.T.Helper()
	return s.listen(orderListen{Interface: name, Addr: netip.MustParsePrefix(addr), Secret: 1})
}

// ring makes all spaces probe their neighbors at the same time.
func ring(t *testing.T, spaces []*space, endpoints []Endpoint) []Report {
	t.Helper()
	reports := make([]Report, len(spaces))
	errs := make(chan error)
	for i, s := range spaces {
		go func() {
			a, err := s.node.tell(order{Probe: Neighbors(endpoints, i)})
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
