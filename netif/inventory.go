package netif

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
)

// An Inventory is the network configuration of one host.
type Inventory struct {
	Host   string  `json:"host"`   // host name, for messages; may be empty
	Links  []Link  `json:"links"`  // in the kernel's order
	Routes []Route `json:"routes"` // the main table and the tables of Rules, in the kernel's order

	Rules []Rule       `json:"rules,omitempty"` // policy rules by priority; empty if the host has only the kernel's three
	RDMA  []RDMADevice `json:"rdma,omitempty"`  // by name
	GPUs  []GPU        `json:"gpus,omitempty"`  // by bus address
}

// A Link is a network interface. The field values use the terms of iproute2.
type Link struct {
	Index  int            `json:"index"`  // kernel interface index, from 1
	Name   string         `json:"name"`   // at most 15 bytes
	Kind   string         `json:"kind"`   // "veth", "bridge", "bond", ...; empty for a device
	ARPHRD string         `json:"arphrd"` // link layer: "ether", "infiniband", "loopback", ...
	Flags  Flags          `json:"flags"`
	Oper   string         `json:"oper"`           // RFC 2863 state: "up", "down", "unknown", ...
	MTU    int            `json:"mtu"`            // bytes
	Speed  int            `json:"speed"`          // Mb/s, from the driver; -1 is unknown
	Master string         `json:"master"`         // the bond or bridge that it belongs to
	Parent string         `json:"parent"`         // link below a vlan or macvlan; may be in another namespace and not in Links
	PCI    string         `json:"pci"`            // bus address of the device; empty for a virtual link
	Driver string         `json:"driver"`         // kernel driver of the device
	HCA    string         `json:"hca"`            // RDMA device on the same hardware, such as "mlx5_0" or "cxi0"
	Path   string         `json:"path,omitempty"` // sysfs path of the device, as in [GPU]
	NUMA   *int           `json:"numa,omitempty"` // NUMA node of the device; nil is unknown
	Addrs  []netip.Prefix `json:"addrs"`          // addresses with prefix length
}

// Flags are the interface flags that decide whether a link carries traffic.
type Flags uint8

// The flags of netdevice(7). As text they are comma-separated: "up,running".
const (
	Up      Flags = 1 << iota // IFF_UP: administratively up
	Running                   // IFF_RUNNING: resources allocated, carrier present
	LowerUp                   // IFF_LOWER_UP: the layer below is up
)

// MarshalText returns "up,running,lower_up", or "down" without flags.
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

// otherFlags are the flags of "ip link" that do not affect whether a link works.
var otherFlags = []string{
	"broadcast", "multicast", "loopback", "pointopoint", "noarp", "promisc", "allmulti", "master", "slave",
	"debug", "notrailers", "portsel", "automedia", "dynamic", "echo", "dormant", "no-carrier",
}

// UnmarshalText reads the format of MarshalText and ignores the other flags of "ip link".
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

// A Route is one entry of a routing table. A route with several next hops becomes several
// Routes that differ only in Dev and Via.
type Route struct {
	Dst    netip.Prefix // in JSON "default" is 0.0.0.0/0
	Dev    string       // empty: drops packets (blackhole, unreachable, prohibit)
	Via    netip.Addr   // gateway; invalid for hosts on the link itself
	Src    netip.Addr   // preferred source address; may be invalid
	Metric int          // lower values come first
	Table  int          // 0 is the main table, which has ID 254 in Linux
	Throw  bool         // skip the rest of this table and continue with the next rule
}

type routeText struct {
	Dst    string     `json:"dst"`
	Dev    *string    `json:"dev"` // nil: missing, which must not mean a route that drops packets
	Via    string     `json:"via"`
	Src    netip.Addr `json:"src"`
	Metric int        `json:"metric"`
	Table  tableID    `json:"table,omitempty"`
	Throw  bool       `json:"throw,omitempty"`
}

// viaInet6 marks an IPv6 gateway of an IPv4 route (RFC 5549), as iproute2 does.
const viaInet6 = "(via inet6)"

// MarshalJSON writes the route in the format of "ip route".
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

// UnmarshalJSON reads the format of MarshalJSON. A "default" with an IPv6 gateway or source is
// ::/0.
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

// maxInventoryBytes is far above the size of any real host's inventory. It is small enough for
// a process that reads the inventories of a whole job.
const maxInventoryBytes = 8 << 20

// ReadInventory reads one inventory as JSON and validates it: names are well formed and
// defined, and addresses and numbers are in range. It rejects text after the inventory. A key
// that is almost equal to a supported key is an error, because it is probably a typo.
// ReadInventory ignores other unknown keys. It rejects inventories of more than 8 MiB, 4,096
// links, 16,384 addresses, or 16,384 routes.
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
