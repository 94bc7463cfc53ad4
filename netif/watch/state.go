package watch

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// A state is the last known state of the interface.
type state struct {
	name    string
	index   int // 0: the interface does not exist
	up      bool
	carrier bool // the layer below is up
	oper    string
	mtu     int
	master  int // index of the bond or bridge that it belongs to; 0 for none
	addrs   map[netip.Prefix]bool
}

// changes describes the differences between two states.
func changes(before, after state) []string {
	switch {
	case before.index == 0 && after.index == 0:
		return nil
	case after.index == 0:
		return []string{"interface gone"}
	case before.index == 0:
		return []string{"interface is back: " + after.describe()}
	case before.index != after.index:
		return []string{"interface gone", "interface is back: " + after.describe()}
	}
	var out []string
	tell := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if before.name != after.name {
		tell("renamed from %s to %s", before.name, after.name)
	}
	switch {
	case before.up && !after.up:
		tell("link down")
	case !before.up && after.up && after.carrier:
		tell("link up")
	case !before.up && after.up:
		tell("link up, no carrier")
	case after.up && before.carrier && !after.carrier:
		tell("carrier lost")
	case after.up && !before.carrier && after.carrier:
		tell("carrier is back")
	case after.up && before.oper != after.oper && (before.oper == "dormant" || after.oper == "dormant"):
		tell("operational state changed from %s to %s", before.oper, after.oper)
	}
	if before.mtu != after.mtu {
		tell("mtu changed from %d to %d", before.mtu, after.mtu)
	}
	switch {
	case before.master == 0 && after.master != 0:
		tell("became a part of interface %d", after.master)
	case before.master != 0 && after.master == 0:
		tell("is no longer a part of interface %d", before.master)
	case before.master != after.master:
		tell("moved from interface %d to interface %d", before.master, after.master)
	}
	for _, a := range sorted(before.addrs) {
		if !after.addrs[a] {
			tell("address %s removed", a)
		}
	}
	for _, a := range sorted(after.addrs) {
		if !before.addrs[a] {
			tell("address %s added", a)
		}
	}
	return out
}

// describe summarizes the state. An interface that comes back may be a different one.
func (s state) describe() string {
	text := "up"
	switch {
	case !s.up:
		text = "down"
	case !s.carrier:
		text = "up, no carrier"
	}
	text += fmt.Sprintf(", mtu %d", s.mtu)
	if len(s.addrs) == 0 {
		return text + ", no address yet"
	}
	for _, a := range sorted(s.addrs) {
		text += ", " + a.String()
	}
	return text
}

func sorted(addrs map[netip.Prefix]bool) []netip.Prefix {
	return slices.SortedFunc(maps.Keys(addrs), netip.Prefix.Compare)
}
