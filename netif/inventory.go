package netif

import (
	"net/netip"
	"slices"
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

// A Rule is a policy routing rule. It selects the routing table for matching packets. The
// field values use the terms of "ip rule". A rule without From and To applies to IPv4 and
// IPv6. A rule for all addresses of one family has 0.0.0.0/0 or ::/0.
type Rule struct {
	Priority int          `json:"priority"` // lower values come first
	From     netip.Prefix `json:"from"`     // source addresses; the zero value matches all
	To       netip.Prefix `json:"to"`       // destinations; the zero value matches all
	IIF      string       `json:"iif"`      // only packets that arrived on this interface
	OIF      string       `json:"oif"`      // only packets of sockets bound to this interface
	Mark     uint32       `json:"mark"`     // only packets with this mark; 0 means any mark
	Table    int          `json:"table"`    // 254 is main, 255 local, 253 default

	Not      bool `json:"not,omitempty"`      // applies to packets that the conditions do not match
	Suppress *int `json:"suppress,omitempty"` // ignore routes with at most this prefix length (suppress_prefixlength)

	// A rule without a table either drops packets (Action) or continues with the rules from
	// priority Goto.
	Action string `json:"action,omitempty"`
	Goto   int    `json:"goto,omitempty"`
}

// Actions of rules that drop packets, in the terms of "ip rule".
const (
	Blackhole   = "blackhole"   // drops silently; connect fails with EINVAL
	Unreachable = "unreachable" // ENETUNREACH
	Prohibit    = "prohibit"    // EACCES
)

// An RDMADevice is an InfiniBand or RoCE adapter in /sys/class/infiniband.
type RDMADevice struct {
	Name  string     `json:"name"`           // "mlx5_0"
	PCI   string     `json:"pci"`            // bus address of the device
	Path  string     `json:"path,omitempty"` // sysfs path of the device, as in [GPU]
	NUMA  int        `json:"numa"`           // NUMA node of the device; -1 is unknown
	Ports []RDMAPort `json:"ports"`
}

// An RDMAPort is one port of an adapter.
type RDMAPort struct {
	Number    int    `json:"number"`     // from 1
	LinkLayer string `json:"link_layer"` // "InfiniBand" or "Ethernet" (RoCE)
	State     string `json:"state"`      // "ACTIVE", "DOWN", "INIT", "ARMED"
	Rate      int    `json:"rate"`       // Mb/s; -1 is unknown
	GIDs      []GID  `json:"gids"`       // non-empty entries
}

// A GID is one entry of a port's GID table.
type GID struct {
	Index int        `json:"index"`
	Addr  netip.Addr `json:"addr"` // as an IPv6 address; IPv4 addresses are IPv4-mapped
	Type  string     `json:"type"` // "IB/RoCE v1" or "RoCE v2"
	Link  string     `json:"link"` // interface that it belongs to; empty for InfiniBand
}

// A GPU is an NVIDIA or AMD GPU and its position in the PCI topology.
type GPU struct {
	PCI  string `json:"pci"`  // bus address
	Path string `json:"path"` // sysfs path: the bridges above it and the GPU, separated by slashes
	NUMA int    `json:"numa"` // NUMA node; -1 is unknown

	Vendor string `json:"vendor,omitempty"` // NVIDIA or AMD
}

// Vendors of GPUs.
const (
	NVIDIA = "nvidia"
	AMD    = "amd"
)

// HasOnlyAMD reports whether the host has GPUs and all of them are from AMD.
func (inv *Inventory) HasOnlyAMD() bool {
	return len(inv.GPUs) > 0 && !slices.ContainsFunc(inv.GPUs, func(g GPU) bool { return g.Vendor != AMD })
}
