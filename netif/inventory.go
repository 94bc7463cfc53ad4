package netif

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
)

// Inventory is the network configuration of one host.
type Inventory struct {
	Host   string  `json:"host"`   // the host's name, for messages; may be empty
	Links  []Link  `json:"links"`  // in the kernel's order
	Routes []Route `json:"routes"` // the main table, in the kernel's order

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
	Parent string         `json:"parent"`         // the link that a vlan or macvlan stands on
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

// UnmarshalText reads what MarshalText writes.
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
			return fmt.Errorf("unknown interface flag %q: known are up, running, lower_up and down", word)
		}
	}
	*f = got
	return nil
}

// Route is one way out of the main routing table. A route over several next
// hops is several Routes that differ in Dev and Via only.
type Route struct {
	Dst    netip.Prefix // in JSON "default" is 0.0.0.0/0
	Dev    string       // empty: packets are dropped (blackhole, unreachable, prohibit)
	Via    netip.Addr   // the gateway; not valid for hosts on the link itself
	Src    netip.Addr   // the address that the kernel prefers to send from; may be not valid
	Metric int          // the lower goes first
}

type routeText struct {
	Dst    string     `json:"dst"`
	Dev    string     `json:"dev"`
	Via    string     `json:"via"`
	Src    netip.Addr `json:"src"`
	Metric int        `json:"metric"`
}

// viaInet6 marks an IPv6 gateway of an IPv4 route (RFC 5549), as iproute2 does.
const viaInet6 = "(via inet6)"

// MarshalJSON writes the route in the words of "ip route".
func (r Route) MarshalJSON() ([]byte, error) {
	text := routeText{Dst: r.Dst.String(), Dev: r.Dev, Src: r.Src, Metric: r.Metric}
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
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&text); err != nil {
		return err
	}
	got := Route{Dev: text.Dev, Src: text.Src, Metric: text.Metric}
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
// formed and known, addresses and numbers are in range, nothing follows.
// An unknown key is an error, as is an inventory of more than 8 MiB, 4096
// links, 16384 addresses or 16384 routes.
func ReadInventory(r io.Reader) (Inventory, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxInventoryBytes+1))
	if err != nil {
		return Inventory{}, fmt.Errorf("reading network inventory: %w", err)
	}
	if len(data) > maxInventoryBytes {
		return Inventory{}, fmt.Errorf("reading network inventory: larger than %d bytes", maxInventoryBytes)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	var inv Inventory
	if err := dec.Decode(&inv); err != nil {
		return Inventory{}, fmt.Errorf("reading network inventory: line %d: %w", lineOf(data, err, dec), err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Inventory{}, fmt.Errorf("reading network inventory: line %d: more text after its end", lineOf(data, err, dec))
	}
	if err := inv.validate(); err != nil {
		return Inventory{}, fmt.Errorf("reading network inventory: %w", err)
	}
	return inv, nil
}

// lineOf says in which line of data decoding stopped.
func lineOf(data []byte, err error, dec *json.Decoder) int {
	at := dec.InputOffset()
	var syntax *json.SyntaxError
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		at = syntax.Offset
	case errors.As(err, &wrong):
		at = wrong.Offset
	}
	return 1 + bytes.Count(data[:min(at, int64(len(data)))], []byte("\n"))
}
