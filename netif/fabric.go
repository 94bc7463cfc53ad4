package netif

import "net/netip"

// A Rule is a policy routing rule. It selects the routing table for matching packets. The
// field values use the terms of "ip rule". A rule without From and To applies to IPv4 and
// IPv6. A rule for all addresses of one family has 0.0.0.0/0 or ::/0.
type Rule struct {
	Priority int          `json:"priority"` // lower values come first
	From     netip.Prefix `json:"from"`     // source addresses; the zero value matches all
	To       netip.Prefix `json:"to"`       // destinations; the zero value matches all
	IIF      string       `json:"iif"`      // only packets that arrived on this interface
	OIF      string       `json:"oif"`      // only packets of sockets bound to this interface
	Mark     uint32       `json:"mark"`     // only packets with this mark; 0 is none
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
}
