package nccl

import (
	"strings"

	"github.com/ddpbatch/ddpbatch/netif"
)

// Stock is the interface over which the ranks of NCCL 2.28 and newer meet where nothing
// is set: by name and order alone (src/misc/socket.cc, src/os/linux.cc of 2.30.7). Those
// whose names begin with "ib" come first, then all but docker, lo and virbr, then these;
// of each kind the first with an address that runs, by IPv4 before IPv6. Empty where
// there is none: NCCL says "Bootstrap : no socket interface found".
func Stock(inv netif.Inventory) string {
	last := []string{"docker", "lo", "virbr"}
	begins := func(name string, prefixes ...string) bool {
		for _, p := range prefixes {
			if strings.HasPrefix(name, p) {
				return true
			}
		}
		return false
	}
	passes := []func(string) bool{
		func(name string) bool { return begins(name, "ib") },
		func(name string) bool { return !begins(name, last...) },
	}
	for _, prefix := range last {
		passes = append(passes, func(name string) bool { return begins(name, prefix) })
	}
	for _, matches := range passes {
		for _, v4 := range []bool{true, false} {
			for _, l := range inv.Links {
				if matches(l.Name) && l.Flags&netif.Running != 0 && hasFamily(l, v4) {
					return l.Name
				}
			}
		}
	}
	return ""
}

// hasFamily says whether a link has an address of a family; ::1 is none for NCCL.
func hasFamily(l netif.Link, v4 bool) bool {
	for _, p := range l.Addrs {
		if a := p.Addr(); a.Unmap().Is4() == v4 && (v4 || !a.IsLoopback()) {
			return true
		}
	}
	return false
}
