package nccl

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/netif"
)

// DefaultInterface returns the default interface: the interface for the bootstrap of NCCL 2.28 and later
// if no variable is set. NCCL selects it only by name and order (src/misc/socket.cc,
// src/os/linux.cc of 2.30.7). Names with prefix "ib" come first, then all names except docker,
// lo, and virbr, then these. Within each group, NCCL uses the first running interface with an
// address, IPv4 before IPv6. DefaultInterface returns "" if no interface matches; NCCL then reports
// "Bootstrap : no socket interface found".
func DefaultInterface(inv netif.Inventory) string {
	last := []string{"docker", "lo", "virbr"}
	passes := []func(string) bool{
		func(name string) bool { return strings.HasPrefix(name, "ib") },
		func(name string) bool {
			return !slices.ContainsFunc(last, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
		},
	}
	for _, prefix := range last {
		passes = append(passes, func(name string) bool { return strings.HasPrefix(name, prefix) })
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

// hasFamily reports whether a link has an address of a family. NCCL ignores ::1.
func hasFamily(l netif.Link, v4 bool) bool {
	return slices.ContainsFunc(l.Addrs, func(p netip.Prefix) bool {
		return p.Addr().Unmap().Is4() == v4 && (v4 || !p.Addr().IsLoopback())
	})
}
