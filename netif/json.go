package netif

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/printable"
)

// A Case is an inventory with the addresses that the host must reach. It is enough to
// reproduce a choice on a different machine.
type Case struct {
	ID     string `json:"id"`               // name for messages; may be empty
	Source string `json:"source,omitempty"` // origin, for human readers
	Inventory
	Peers    []netip.Addr `json:"peers"`               // addresses of other hosts
	Settings []Setting    `json:"nccl_conf,omitempty"` // from this host's NCCL configuration files, in order of precedence
}

// A Setting is a line of a configuration file. This package stores settings but does not
// interpret them.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	File  string `json:"file"`
	Line  int    `json:"line"`
}

// maxCasesBytes limits the memory that ReadCases needs. The inventory of a host has some tens
// of kilobytes.
const maxCasesBytes = 64 << 20

// ReadCases reads one case or a list of cases as JSON. A plain inventory is a case without
// peers. ReadCases rejects unknown fields, invalid links, addresses, and routes, input of
// more than 64 MiB, and hosts whose networks would take minutes to compare. The second result
// reports whether the input was a list.
func ReadCases(r io.Reader) (cases []Case, isList bool, err error) {
	data, err := io.ReadAll(io.LimitReader(r, maxCasesBytes+1))
	if err != nil {
		return nil, false, err
	}
	if len(data) > maxCasesBytes {
		return nil, false, fmt.Errorf("larger than %d MiB", maxCasesBytes>>20)
	}
	if isList = bytes.HasPrefix(bytes.TrimSpace(data), []byte("[")); isList {
		err = decodeStrict(data, &cases)
	} else {
		cases = make([]Case, 1)
		err = decodeStrict(data, &cases[0])
	}
	if err != nil {
		return nil, isList, err
	}
	seen := make(map[string]bool, len(cases))
	work := 0.0
	for i := range cases {
		c := &cases[i]
		err := c.validate()
		if work += c.work(); err == nil && work > maxCasesWork {
			err = fmt.Errorf("too many links, addresses, peers, and routes: at most %g combinations", maxCasesWork)
		}
		if c.ID != "" && seen[c.ID] {
			err = errors.New("duplicate id")
		}
		if err != nil && isList {
			err = fmt.Errorf("case %d (%q): %w", i, c.ID, err)
		}
		if err != nil {
			return nil, isList, err
		}
		seen[c.ID] = true
	}
	return cases, isList, nil
}

// decodeStrict decodes exactly one JSON value and rejects unknown fields.
func decodeStrict(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("unexpected text after the JSON value")
	}
	return nil
}

func (c *Case) validate() error {
	for _, p := range c.Peers {
		if !p.IsValid() {
			return errors.New("empty peer address")
		}
	}
	return c.Inventory.validate()
}

// validate checks the properties that Choose and Agree rely on. Links must have unique names
// that are safe in messages and in environment variables. Addresses and destinations must be
// valid, and routes must use links of the inventory.
func (inv *Inventory) validate() error {
	names := make(map[string]bool, len(inv.Links))
	for _, path := range inv.devicePaths() {
		if len(path) > maxDevicePath {
			return fmt.Errorf("path of a device with %d bytes, want at most %d", len(path), maxDevicePath)
		}
	}
	for i := range inv.Links {
		l := &inv.Links[i]
		if err := checkName(l.Name); err != nil {
			return fmt.Errorf("link %q: %w", l.Name, err)
		}
		if names[l.Name] {
			return fmt.Errorf("link %q: duplicate name", l.Name)
		}
		names[l.Name] = true
		for _, a := range l.Addrs {
			if !a.IsValid() || a.Addr().IsUnspecified() || a.Addr().Is4In6() {
				return fmt.Errorf("link %q: invalid address %s", l.Name, a)
			}
		}
	}
	for _, r := range inv.Routes {
		switch {
		case r.Dev != "" && !names[r.Dev]:
			return fmt.Errorf("route to %s: no link %q", r.Dst, r.Dev)
		case !r.Dst.IsValid() || r.Dst != r.Dst.Masked():
			return fmt.Errorf("route to %s: invalid subnet: bits are set after the prefix", r.Dst)
		}
	}
	return nil
}

// maxDevicePath is the maximum length of a path in sysfs, in bytes (PATH_MAX).
const maxDevicePath = 4096

// devicePaths returns the sysfs paths of all devices.
func (inv *Inventory) devicePaths() []string {
	var paths []string
	for i := range inv.Links {
		paths = append(paths, inv.Links[i].Path)
	}
	for i := range inv.RDMA {
		paths = append(paths, inv.RDMA[i].Path)
	}
	for i := range inv.GPUs {
		paths = append(paths, inv.GPUs[i].Path)
	}
	return paths
}

// maxName is IFNAMSIZ without the terminating NUL, in bytes.
const maxName = 15

// checkName applies the kernel's dev_valid_name. It also rejects characters that control a
// terminal.
func checkName(name string) error {
	switch {
	case name == "" || name == "." || name == ".." || printable.Line(name) != name || strings.ContainsAny(name, "/: "):
		return errors.New("invalid interface name")
	case len(name) > maxName:
		return fmt.Errorf("interface name is longer than %d bytes", maxName)
	}
	return nil
}

// flagNames are the names of the flags, by bit.
var flagNames = []string{"up", "running", "lower_up"}

// MarshalText returns "up,running,lower_up", or "down" without flags.
func (f Flags) MarshalText() ([]byte, error) {
	var names []string
	for i, name := range flagNames {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if names == nil {
		return []byte("down"), nil
	}
	return []byte(strings.Join(names, ",")), nil
}

// UnmarshalText reads the format of MarshalText.
func (f *Flags) UnmarshalText(text []byte) error {
	var flags Flags
	for name := range strings.SplitSeq(string(text), ",") {
		bit := slices.Index(flagNames, name)
		if bit < 0 && name != "down" {
			return fmt.Errorf("unknown interface flag %q", name)
		}
		if bit >= 0 {
			flags |= 1 << bit
		}
	}
	*f = flags
	return nil
}

// routeText is the JSON form of a Route.
type routeText struct {
	Dst    string     `json:"dst"`
	Dev    *string    `json:"dev"` // nil: missing, which must not mean a route that drops packets
	Via    string     `json:"via"`
	Src    netip.Addr `json:"src"`
	Metric int        `json:"metric"`
	Table  int        `json:"table,omitempty"`
	Throw  bool       `json:"throw,omitempty"`
}

// viaInet6 marks an IPv6 gateway of an IPv4 route (RFC 5549), as iproute2 does.
const viaInet6 = "(via inet6)"

// MarshalJSON writes the route in the format of "ip route".
func (r Route) MarshalJSON() ([]byte, error) {
	text := routeText{Dst: r.Dst.String(), Dev: &r.Dev, Src: r.Src, Metric: r.Metric, Table: r.Table, Throw: r.Throw}
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
	if err := decodeStrict(data, &text); err != nil {
		return err
	}
	if text.Dev == nil {
		return fmt.Errorf("route to %q: missing field \"dev\"", text.Dst)
	}
	got := Route{Dev: *text.Dev, Src: text.Src, Metric: text.Metric, Table: text.Table, Throw: text.Throw}
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
