package netif

import (
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/netif/internal/netspace"
)

// TestMain runs the tests as root in network namespaces.
func TestMain(m *testing.M) { os.Exit(netspace.Main(m)) }

// A space is a separate network namespace that contains only a loopback.
type space struct{ *netspace.Space }

func newSpace(t *testing.T) *space { t.Helper(); return &space{netspace.New(t)} }

// plug attaches one end of a veth to the bridge and the other end, called name, to node.
func (s *space) plug(node *space, bridge, name, port string, mtu int) {
	s.T.Helper()
	s.Plug(node.Space, bridge, name, port, mtu)
}

func (s *space) collect(host string) Inventory {
	s.T.Helper()
	var inv Inventory
	s.Do(func() (err error) {
		inv, err = Collect(s.T.Context())
		return err
	})
	inv.Host = host
	return inv
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// talk sends one byte between two addresses.
func talk(t *testing.T, from, to *space, src, dst netip.Addr) {
	t.Helper()
	var ln net.Listener
	to.Do(func() (err error) {
		ln, err = net.Listen("tcp", netip.AddrPortFrom(dst, 0).String())
		return err
	})
	defer ln.Close()
	from.Do(func() error {
		d := net.Dialer{Timeout: 5 * time.Second, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(src, 0))}
		conn, err := d.Dial("tcp", ln.Addr().String())
		if err != nil {
			return err
		}
		return conn.Close()
	})
}
