package nccl

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/netif"
)

// Link layers that NCCL's InfiniBand transport supports, as sysfs names them.
const (
	infiniBand = "InfiniBand"
	ethernet   = "Ethernet" // RoCE
)

// A rail is a port of an RDMA adapter.
type rail struct {
	device string
	port   int // anyPort if the adapter has several and sysfs does not identify it
	layer  string
	rate   int // Mb/s; -1 is unknown
	numa   int // -1 is unknown
	path   []string
	links  []*netif.Link // IP links on this port; may be empty
	gids   []netif.GID
	active bool
	state  string
}

// String returns the port in the syntax of NCCL and UCX: "mlx5_0:1".
func (r *rail) String() string {
	if r.port == anyPort {
		return r.device
	}
	return fmt.Sprintf("%s:%d", r.device, r.port)
}

// ports returns all RDMA ports of a host. If sysfs does not show the adapters, it derives the
// ports from the links on top of them.
func ports(inv *netif.Inventory) []rail {
	var rails []rail
	for i := range inv.RDMA {
		d := &inv.RDMA[i]
		for j := range d.Ports {
			rails = append(rails, portOf(inv, d, &d.Ports[j]))
		}
	}
	if len(inv.RDMA) > 0 {
		// Sort numerically: the kernel lists mlx5_10 before mlx5_2.
		slices.SortStableFunc(rails, func(a, b rail) int { return compareNames(a.device, b.device) })
		return rails
	}
	seen := map[string]int{}
	for i := range inv.Links {
		l := &inv.Links[i]
		if l.HCA == "" || isSlingshot(l) {
			continue
		}
		if at, twice := seen[l.HCA]; twice {
			r := &rails[at]
			r.port, r.links = anyPort, append(r.links, l)
			if isUp(l) {
				r.active, r.rate = true, max(r.rate, l.Speed)
			}
			continue
		}
		seen[l.HCA] = len(rails)
		r := rail{device: l.HCA, port: 1, layer: ethernet, rate: l.Speed, numa: -1, path: components(l.Path), links: []*netif.Link{l}, active: isUp(l), state: "down"}
		if l.ARPHRD == "infiniband" {
			r.layer = infiniBand
		}
		if l.NUMA != nil {
			r.numa = *l.NUMA
		}
		if m := bondOf(inv, l); m != nil {
			r.links = append(r.links, m)
		}
		rails = append(rails, r)
	}
	for i := range rails {
		rails[i].addVLANs(inv)
	}
	return rails
}

// portOf returns an RDMA port as a rail, with its network interfaces.
func portOf(inv *netif.Inventory, d *netif.RDMADevice, port *netif.RDMAPort) rail {
	r := rail{device: d.Name, port: port.Number, layer: port.LinkLayer, rate: port.Rate, numa: d.NUMA, path: components(d.Path),
		gids: port.GIDs, active: port.State == "ACTIVE", state: port.State}
	add := func(l *netif.Link) {
		if l != nil && !slices.Contains(r.links, l) {
			r.links = append(r.links, l)
		}
	}
	for i := range inv.Links {
		l := &inv.Links[i]
		if l.HCA != d.Name && (l.PCI == "" || l.PCI != d.PCI) {
			continue
		}
		if r.path == nil {
			r.path = components(l.Path)
		}
		// An adapter with several ports has a link for each. Only GIDs identify the port.
		if len(d.Ports) == 1 {
			add(l)
			add(bondOf(inv, l))
		}
	}
	for _, g := range port.GIDs {
		if g.Link != "" {
			add(linkNamed(inv, g.Link))
		}
	}
	if len(r.gids) == 0 {
		r.addVLANs(inv)
	}
	return r
}

// addVLANs adds the VLANs on top of a port's links. If the GID table is readable, it already
// contains their GIDs.
func (r *rail) addVLANs(inv *netif.Inventory) {
	for i := range inv.Links {
		if l := &inv.Links[i]; l.Parent != "" && r.isOn(l.Parent) && !r.isOn(l.Name) {
			r.links = append(r.links, l)
		}
	}
}

// bondOf returns the bond that a link belongs to, or nil. The bond has the addresses.
func bondOf(inv *netif.Inventory, l *netif.Link) *netif.Link {
	m := linkNamed(inv, l.Master)
	if m == nil || m.Kind != "bond" && m.Kind != "team" {
		return nil
	}
	return m
}

func linkNamed(inv *netif.Inventory, name string) *netif.Link {
	for i := range inv.Links {
		if inv.Links[i].Name == name {
			return &inv.Links[i]
		}
	}
	return nil
}

func isUp(l *netif.Link) bool {
	return l.Flags&netif.Up != 0 && l.Flags&netif.Running != 0 && (l.Oper == "up" || l.Oper == "unknown")
}

// isSlingshot reports whether a link belongs to a Cassini adapter, by its driver.
func isSlingshot(l *netif.Link) bool {
	return strings.HasPrefix(l.HCA, "cxi") || strings.HasPrefix(l.Driver, "cxi")
}

// excluded reports whether an interface of the port is excluded. A VLAN is only one of a
// port's networks. The port is usable as long as another network is left.
func (r *rail) excluded(names []string) bool {
	left := false
	for _, l := range r.links {
		isNamed := slices.Contains(names, l.Name)
		if isNamed && l.Parent == "" {
			return true
		}
		left = left || !isNamed && len(l.Addrs) > 0
	}
	return !left && slices.ContainsFunc(r.links, func(l *netif.Link) bool { return slices.Contains(names, l.Name) })
}

// usedByDefault reports whether NCCL uses the port by default.
func (r *rail) usedByDefault() bool {
	return r.active && (r.layer == infiniBand || r.layer == ethernet)
}

// lacksAddress reports whether a RoCE port certainly has no IP address: neither in its GID table
// nor, if the table is unreadable, on its interface.
func (r *rail) lacksAddress() bool {
	return r.layer == ethernet && !r.hasAddress() && (!r.inTable() || len(r.gids) == 0 && len(r.links) > 0)
}

// hasAddress reports whether RoCE on a port is routable. Its interface must have an address,
// and the GID table must contain it if the table is readable.
func (r *rail) hasAddress() bool {
	return r.inTable() && len(r.addresses()) > 0
}

func (r *rail) inTable() bool {
	return len(r.gids) == 0 || slices.ContainsFunc(r.gids, func(g netif.GID) bool { return g.Addr.Unmap().IsGlobalUnicast() })
}

// wantsAddress reports whether the user should add an address to the port. A port below a
// bridge or a virtual machine's interface has no address on purpose.
func (r *rail) wantsAddress() bool {
	return r.lacksAddress() && !slices.ContainsFunc(r.links, func(l *netif.Link) bool { return l.Master != "" })
}

// addresses returns the global IP addresses of the port.
func (r *rail) addresses() []netip.Prefix {
	var found []netip.Prefix
	for _, l := range r.links {
		for _, a := range l.Addrs {
			if a.Addr().IsGlobalUnicast() {
				found = append(found, a)
			}
		}
	}
	return found
}

// isBelow reports whether the chosen interface is on top of the port.
func (r *rail) isBelow(c *netif.Choice) bool {
	return slices.ContainsFunc(r.links, func(l *netif.Link) bool {
		return l.Name == c.Interface || l.Master == c.Interface
	})
}

// subnet returns the subnet prefix of an InfiniBand port (IBTA 4.1.1). Hosts with different
// prefixes cannot reach each other.
func (r *rail) subnet() string {
	if r.layer != infiniBand || len(r.gids) == 0 {
		return ""
	}
	return netip.PrefixFrom(r.gids[0].Addr, 64).Masked().String()
}

// compareNames sorts names that contain numbers in natural order. It ignores case, so that the
// two names of one device, such as rocep1s0f1 and roceP2p1s0f1, are adjacent.
func compareNames(a, b string) int {
	x, y := strings.ToLower(a), strings.ToLower(b)
	for x != "" && y != "" {
		m, n := digits(x), digits(y)
		if m > 0 && n > 0 {
			p, q := strings.TrimLeft(x[:m], "0"), strings.TrimLeft(y[:n], "0")
			if c := cmp.Or(cmp.Compare(len(p), len(q)), cmp.Compare(p, q)); c != 0 {
				return c
			}
			x, y = x[m:], y[n:]
			continue
		}
		if x[0] != y[0] {
			return cmp.Compare(x[0], y[0])
		}
		x, y = x[1:], y[1:]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(a, b))
}

// digits returns the number of leading digits.
func digits(s string) int {
	return len(s) - len(strings.TrimLeft(s, "0123456789"))
}

func layerName(layer string) string {
	if layer == ethernet {
		return "RoCE"
	}
	return layer
}

// rateText formats a rate in Mb/s for messages.
func rateText(rate int) string {
	if rate < 0 {
		return "an unknown rate"
	}
	return fmt.Sprintf("%g Gb/s", float64(rate)/1000)
}

func names(rails []rail) []string {
	list := make([]string, len(rails))
	for i := range rails {
		list[i] = rails[i].String()
	}
	return list
}
