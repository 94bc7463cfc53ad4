package netif

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxLinks  = 4096
	maxAddrs  = 16384 // of all links; a Kubernetes service bridge has thousands
	maxRoutes = 16384
	maxName   = 15 // IFNAMSIZ without the terminating NUL
	maxWord   = 64
	maxPath   = 1024
	maxHost   = 253 // RFC 1035
	maxRules  = 1024
	maxRDMA   = 1024 // devices
	maxPorts  = 256  // per device
	maxGIDs   = 4096 // per port
	maxGPUs   = 1024
)

// operStates are the RFC 2863 states in iproute2's spelling.
var operStates = []string{"up", "down", "unknown", "dormant", "testing", "not-present", "lower-layer-down"}

// sysfsStates maps the spelling of the kernel's operstate files to iproute2's spelling.
var sysfsStates = map[string]string{"notpresent": "not-present", "lowerlayerdown": "lower-layer-down"}

// validate checks an inventory and normalizes its values.
func (inv *Inventory) validate() error {
	if err := checkWord(inv.Host, maxHost); err != nil {
		return fmt.Errorf("host %q: %w", inv.Host, err)
	}
	if len(inv.Links) > maxLinks {
		return fmt.Errorf("has %d links, more than %d", len(inv.Links), maxLinks)
	}
	if len(inv.Routes) > maxRoutes {
		return fmt.Errorf("has %d routes, more than %d", len(inv.Routes), maxRoutes)
	}
	names := make(map[string]bool, len(inv.Links))
	indexes := make(map[int]string, len(inv.Links))
	addrs := 0
	for i := range inv.Links {
		l := &inv.Links[i]
		if err := l.validate(); err != nil {
			return fmt.Errorf("link %q: %w", l.Name, err)
		}
		if names[l.Name] {
			return fmt.Errorf("link %q: is listed twice", l.Name)
		}
		if other, taken := indexes[l.Index]; taken {
			return fmt.Errorf("link %q: index %d is already that of %q", l.Name, l.Index, other)
		}
		names[l.Name] = true
		indexes[l.Index] = l.Name
		addrs += len(l.Addrs)
	}
	if addrs > maxAddrs {
		return fmt.Errorf("has %d addresses, more than %d", addrs, maxAddrs)
	}
	for i := range inv.Links {
		l := &inv.Links[i]
		if l.Master != "" && !names[l.Master] {
			return fmt.Errorf("link %q: is part of %q, which is not among the links", l.Name, l.Master)
		}
		if l.Parent != "" && !names[l.Parent] { // the parent of a container's link may be in the host's namespace
			if err := checkName(l.Parent); err != nil {
				return fmt.Errorf("link %q: parent %q: %w", l.Name, l.Parent, err)
			}
		}
	}
	for _, r := range inv.Routes {
		if r.Dev != "" && !names[r.Dev] {
			return fmt.Errorf("route to %s: leaves by %q, which is not among the links", r.Dst, r.Dev)
		}
		if err := r.validate(); err != nil {
			return fmt.Errorf("route to %s: %w", r.Dst, err)
		}
	}
	return inv.validateFabric()
}

func (l *Link) validate() error {
	if err := checkName(l.Name); err != nil {
		return err
	}
	if state, known := sysfsStates[l.Oper]; known {
		l.Oper = state
	}
	switch {
	case l.Index < 1 || l.Index > math.MaxInt32:
		return fmt.Errorf("index %d is not between 1 and %d", l.Index, math.MaxInt32)
	case l.MTU < 0 || l.MTU > math.MaxInt32:
		return fmt.Errorf("mtu %d is not between 0 and %d", l.MTU, math.MaxInt32)
	case l.Speed < -1 || l.Speed > math.MaxInt32:
		return fmt.Errorf("speed %d is not between -1 and %d", l.Speed, math.MaxInt32)
	case !slices.Contains(operStates, l.Oper):
		return fmt.Errorf("state %q is not one of %s", l.Oper, strings.Join(operStates, ", "))
	}
	for _, word := range []string{l.Kind, l.ARPHRD, l.PCI, l.Driver, l.HCA} {
		if err := checkWord(word, maxWord); err != nil {
			return fmt.Errorf("%q: %w", word, err)
		}
	}
	if err := checkWord(l.Path, maxPath); err != nil {
		return fmt.Errorf("path %q: %w", l.Path, err)
	}
	if l.NUMA != nil && (*l.NUMA < 0 || *l.NUMA > math.MaxInt32) {
		return fmt.Errorf("memory node %d is not between 0 and %d", *l.NUMA, math.MaxInt32)
	}
	for _, a := range l.Addrs {
		if !a.IsValid() || a.Addr().IsUnspecified() || a.Addr().Is4In6() {
			return fmt.Errorf("address %s is not one that a host can have", a)
		}
	}
	return nil
}

func (r *Route) validate() error {
	switch {
	case !r.Dst.IsValid() || r.Dst.Addr().Is4In6() || r.Dst != r.Dst.Masked():
		return fmt.Errorf("is not a network (bits are set after the prefix)")
	case r.Metric < 0 || r.Metric > math.MaxUint32:
		return fmt.Errorf("metric %d is not between 0 and %d", r.Metric, uint32(math.MaxUint32))
	case r.Table < 0 || r.Table > math.MaxUint32:
		return fmt.Errorf("table %d is not between 0 and %d", r.Table, uint32(math.MaxUint32))
	case r.Throw && r.Dev != "":
		return fmt.Errorf("is thrown, and yet leaves by %q", r.Dev)
	case r.Src.IsValid() && (r.Src.Is4() != r.Dst.Addr().Is4() || r.Src.Zone() != ""):
		return fmt.Errorf("source %s is of another family", r.Src)
	case r.Via.IsValid() && (r.Via.Is4() && r.Dst.Addr().Is6() || r.Via.Zone() != ""):
		return fmt.Errorf("gateway %s is of another family", r.Via)
	}
	return nil
}

// checkName applies the kernel's dev_valid_name. It also rejects characters that cannot be
// printed in a message or an environment variable.
func checkName(name string) error {
	switch {
	case name == "" || name == "." || name == "..":
		return fmt.Errorf("is not an interface name")
	case len(name) > maxName:
		return fmt.Errorf("is longer than %d bytes", maxName)
	case strings.ContainsAny(name, "/:"):
		return fmt.Errorf("has a slash or a colon, which interface names cannot have")
	}
	return checkWord(name, maxName)
}

func checkWord(word string, limit int) error {
	switch {
	case len(word) > limit:
		return fmt.Errorf("is longer than %d bytes", limit)
	case !utf8.ValidString(word):
		return fmt.Errorf("is not UTF-8")
	case strings.ContainsFunc(word, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }):
		return fmt.Errorf("has a space or a character that cannot be printed")
	}
	return nil
}

// isUsableAddr reports whether other hosts can reach a through routing.
func isUsableAddr(a netip.Addr) bool {
	return a.IsGlobalUnicast()
}
