package netif

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
)

// Inventory is the network configuration of one host.
type Inventory struct {
	Host   string  `json:"host"`   // the host's name, for messages; may be empty
	Links  []Link  `json:"links"`  // in the kernel's order
	Routes []Route `json:"routes"` // the main table, and those that Rules lead to, in the kernel's order

	Rules []Rule       `json:"rules,omitempty"` // of policy routing, by priority, where there are more than the kernel's own three
	RDMA  []RDMADevice `json:"rdma,omitempty"`  // by name
	GPUs  []GPU        `json:"gpus,omitempty"`  // by bus address
}

// Link is one network interface. The words are those of iproute2.
type Link struct {
	Index  int            `json:"index"`  // kernel interface index, from 1
	Name   string         `json:"name"`   // at most 15 bytes
	Kind   string         `json:"kind"`   // "veth", "bridge", "bond" ...; empty for a device of its own
	ARPHRD string         `json:"arphrd"` // link layer: "ether", "infiniband", "loopback" ...
	Flags  Flags          `json:"flags"`
	Oper   string         `json:"oper"`           // RFC 2863 state: "up", "down", "unknown" ...
	MTU    int            `json:"mtu"`            // bytes
	Speed  int            `json:"speed"`          // Mb/s as the driver says; -1 is unknown
	Master string         `json:"master"`         // the bond or bridge that it is a part of
	Parent string         `json:"parent"`         // the link that a vlan or macvlan stands on; one of another namespace is not among the links
	PCI    string         `json:"pci"`            // bus address of the device; empty for a virtual link
	Driver string         `json:"driver"`         // kernel driver of the device
	HCA    string         `json:"hca"`            // RDMA device on the same hardware, such as "mlx5_0" or "cxi0"
	Path   string         `json:"path,omitempty"` // of the device: as in [GPU]
	NUMA   *int           `json:"numa,omitempty"` // memory node of the device; nil is unknown
	Addrs  []netip.Prefix `json:"addrs"`          // addresses with the length of their subnet
}

// Flags are the interface flags that say whether a link carries traffic.
type Flags uint8

// The flags of netdevice(7). In text they are comma-separated: "up,running".
const (
	Up      Flags = 1 << iota // IFF_UP: switched on
	Running                   // IFF_RUNNING: resources allocated, a carrier
	LowerUp                   // IFF_LOWER_UP: the layer below is up
)

// MarshalText writes "up,running,lower_up", or "down" for no flag.
func (f Flags) MarshalText() ([]byte, error) {
	var words []string
	for i, word := range []string{"up", "running", "lower_up"} {
		if f&(1<<i) != 0 {
			words = append(words, word)
		}
	}
	if words == nil {
		return []byte("down"), nil
	}
	return []byte(strings.Join(words, ",")), nil
}

// otherFlags are those of "ip link" that say nothing about whether a link works.
var otherFlags = []string{
	"broadcast", "multicast", "loopback", "pointopoint", "noarp", "promisc", "allmulti", "master", "slave",
	"debug", "notrailers", "portsel", "automedia", "dynamic", "echo", "dormant", "no-carrier",
}

// UnmarshalText reads what MarshalText writes, and passes over the other flags
// of "ip link".
func (f *Flags) UnmarshalText(text []byte) error {
	var got Flags
	for word := range strings.SplitSeq(string(text), ",") {
		switch word {
		case "up":
			got |= Up
		case "running":
			got |= Running
		case "lower_up":
			got |= LowerUp
		case "down":
		default:
			if slices.Contains(otherFlags, word) {
				continue
			}
			return fmt.Errorf("unknown interface flag %q: known are up, running, lower_up and down", word)
		}
	}
	*f = got
	return nil
}

// Route is one way out of a routing table. A route over several next hops is
// several Routes that differ in Dev and Via only.
type Route struct {
	Dst    netip.Prefix // in JSON "default" is 0.0.0.0/0
	Dev    string       // empty: packets are dropped (blackhole, unreachable, prohibit)
	Via    netip.Addr   // the gateway; not valid for hosts on the link itself
	Src    netip.Addr   // the address that the kernel prefers to send from; may be not valid
	Metric int          // the lower goes first
	Table  int          // 0 is the main table, which Linux calls 254
	Throw  bool         // the next rule decides, as if this table had no route there
}

type routeText struct {
	Dst    string     `json:"dst"`
	Dev    *string    `json:"dev"` // nil: forgotten, which must not pass for a route that drops packets
	Via    string     `json:"via"`
	Src    netip.Addr `json:"src"`
	Metric int        `json:"metric"`
	Table  tableID    `json:"table,omitempty"`
	Throw  bool       `json:"throw,omitempty"`
}

// viaInet6 marks an IPv6 gateway of an IPv4 route (RFC 5549), as iproute2 does.
const viaInet6 = "(via inet6)"

// MarshalJSON writes the route in the words of "ip route".
func (r Route) MarshalJSON() ([]byte, error) {
	text := routeText{Dst: r.Dst.String(), Dev: &r.Dev, Src: r.Src, Metric: r.Metric, Table: tableID(r.Table), Throw: r.Throw}
	if r.Via.IsValid() {
		text.Via = r.Via.String()
		if r.Dst.Addr().Is4() && r.Via.Is6() {
			text.Via += viaInet6
		}
	}
	if r.Dst.Bits() == 0 && r.Dst.Addr().Is4() {
		text.Dst = "default"
	}
	return json.Marshal(text)
}

// UnmarshalJSON reads what MarshalJSON writes. A "default" whose gateway or
// source is IPv6 is ::/0.
func (r *Route) UnmarshalJSON(data []byte) error {
	var text routeText
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	if text.Dev == nil {
		return fmt.Errorf("route to %q: has no \"dev\"; one that drops packets has an empty one", text.Dst)
	}
	got := Route{Dev: *text.Dev, Src: text.Src, Metric: text.Metric, Table: int(text.Table), Throw: text.Throw}
	if got.Table == tableMain {
		got.Table = 0
	}
	via, mixed := strings.CutSuffix(text.Via, viaInet6)
	if via != "" {
		var err error
		if got.Via, err = netip.ParseAddr(via); err != nil {
			return fmt.Errorf("route to %q: %w", text.Dst, err)
		}
	}
	switch {
	case text.Dst != "default":
		var err error
		if got.Dst, err = netip.ParsePrefix(text.Dst); err != nil {
			return fmt.Errorf("route to %q: %w", text.Dst, err)
		}
	case got.Src.Is6(), got.Via.Is6() && !mixed:
		got.Dst = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	default:
		got.Dst = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	*r = got
	return nil
}

// maxInventoryBytes is far above any real host and far below what would hurt
// the process that reads the inventories of a whole job.
const maxInventoryBytes = 8 << 20

// ReadInventory reads one inventory as JSON and checks it: names are well
// formed and known, addresses and numbers are in range, nothing follows. A key
// that is nearly a known one is an error, for that is a slip of a person who
// wrote by hand; other unknown keys are passed over. An inventory of more than 8 MiB, 4096 links, 16384 addresses or 16384 routes.
func ReadInventory(r io.Reader) (Inventory, error) {
	data, err := readLimited(r, maxInventoryBytes)
	if err != nil {
		return Inventory{}, fmt.Errorf("reading network inventory: %w", err)
	}
	var inv Inventory
	if err := decode(data, &inv); err != nil {
		return Inventory{}, fmt.Errorf("reading network inventory: %w", err)
	}
	if err := inv.validate(); err != nil {
		return Inventory{}, fmt.Errorf("reading network inventory: %w", err)
	}
	return inv, nil
}
