package netif

import "net/netip"

// Rule is one rule of policy routing: which table decides for which packets. The
// words are those of "ip rule". A rule without From and To is for IPv4 and IPv6;
// one for all addresses of one family has 0.0.0.0/0 or ::/0.
type Rule struct {
	Priority int          `json:"priority"` // the lower goes first
	From     netip.Prefix `json:"from"`     // source addresses; the zero value is all
	To       netip.Prefix `json:"to"`       // destinations; the zero value is all
	IIF      string       `json:"iif"`      // only packets that came in there
	OIF      string       `json:"oif"`      // only packets that are bound to that interface
	Mark     uint32       `json:"mark"`     // only packets with that mark; 0 is none
	Table    int          `json:"table"`    // 254 is main, 255 local, 253 default

	Not      bool `json:"not,omitempty"`      // for the packets that the conditions do not match
	Suppress *int `json:"suppress,omitempty"` // routes of at most that many bits do not count (suppress_prefixlength)

	// Without a table: packets are dropped by one of the Actions, or the rules
	// from the priority Goto on decide.
	Action string `json:"action,omitempty"`
	Goto   int    `json:"goto,omitempty"`
}

// Actions of a rule that drop packets, in the words of "ip rule".
const (
	Blackhole   = "blackhole"   // without a word: connecting fails with EINVAL
	Unreachable = "unreachable" // ENETUNREACH
	Prohibit    = "prohibit"    // EACCES
)

// RDMADevice is one InfiniBand or RoCE adapter, as /sys/class/infiniband has it.
type RDMADevice struct {
	Name  string     `json:"name"`           // "mlx5_0"
	PCI   string     `json:"pci"`            // bus address of the device
	Path  string     `json:"path,omitempty"` // of the device: as in [GPU]
	NUMA  int        `json:"numa"`           // memory node of the device; -1 is unknown
	Ports []RDMAPort `json:"ports"`
}

// RDMAPort is one port of an adapter.
type RDMAPort struct {
	Number    int    `json:"number"`     // from 1
	LinkLayer string `json:"link_layer"` // "InfiniBand" or "Ethernet" (RoCE)
	State     string `json:"state"`      // "ACTIVE", "DOWN", "INIT", "ARMED"
	Rate      int    `json:"rate"`       // Mb/s; -1 is unknown
	GIDs      []GID  `json:"gids"`       // those that are not empty
}

// GID is one entry of a port's table of addresses.
type GID struct {
	Index int        `json:"index"`
	Addr  netip.Addr `json:"addr"` // as an IPv6 address; that of an IPv4 one is mapped
	Type  string     `json:"type"` // "IB/RoCE v1" or "RoCE v2"
	Link  string     `json:"link"` // the interface that it belongs to; empty for InfiniBand
}

// GPU is a graphics processor of NVIDIA's or AMD's, by where it is plugged in.
type GPU struct {
	PCI  string `json:"pci"`  // bus address
	Path string `json:"path"` // the bridges above it and itself, separated by slashes: sysfs's path
	NUMA int    `json:"numa"` // memory node; -1 is unknown
}
