package interfaces

import (
	"strings"

	"github.com/ddpbatch/ddpbatch/netif"
)

// ncclMaxDevices is MAX_IFS in NCCL's socket code.
const ncclMaxDevices = 16

// NCCL227 models NCCL 2.27.7 and older, and NCCL228 models 2.28.3 and newer (2.30.7, 5067397:
// src/misc/socket.cc and src/os/linux.cc), without NCCL_* variables.
//
// Names that start with "ib" come first. Without them, NCCL uses all interfaces except docker*, lo*,
// and, since 2.28, virbr*. Without such interfaces, it uses the excluded ones. The order is the
// order of getifaddrs, with one address per interface and up to 16 interfaces. Since 2.28
// an interface must be running. Ranks bootstrap over the first interface. All of them carry data,
// unless there is an InfiniBand or RoCE adapter. Routes and the addresses of peers have no effect.
//
// The models omit NCCL's choice among several data devices by distance to the GPU, net plugins, and
// nccl.conf.
func NCCL227(p Pair) Pick { return ncclPick(p.Here, false) }

// NCCL228 models NCCL since 2.28; see [NCCL227].
func NCCL228(p Pair) Pick { return ncclPick(p.Here, true) }

func ncclPick(inv netif.Inventory, since228 bool) Pick {
	last := []string{"docker", "lo"}
	if since228 {
		last = append(last, "virbr")
	}
	passes := []func(string) bool{
		func(name string) bool { return strings.HasPrefix(name, "ib") },
		func(name string) bool { return !hasAnyPrefix(name, last) },
	}
	for _, prefix := range last {
		passes = append(passes, func(name string) bool { return strings.HasPrefix(name, prefix) })
	}
	pick := Pick{Spread: Devices}
	if hasVerbs(inv) {
		pick.Spread = Meet
	}
	for _, matches := range passes {
		if pick.Uses = ncclFind(inv, matches, since228); len(pick.Uses) > 0 {
			return pick
		}
	}
	pick.Failed = "Bootstrap : no socket interface found"
	return pick
}

func ncclFind(inv netif.Inventory, matches func(string) bool, since228 bool) []Use {
	var found []Use
	seen := map[string]bool{}
	for _, u := range addresses(inv) {
		running := linkNamed(inv, u.Link).Flags&netif.Running != 0
		v6Loopback := u.Addr.Addr().Is6() && u.Addr.Addr().IsLoopback()
		if seen[u.Link] || !matches(u.Link) || since228 && !running || v6Loopback || len(found) == ncclMaxDevices {
			continue
		}
		seen[u.Link] = true
		found = append(found, u)
	}
	return found
}

// hasVerbs reports whether NCCL would move data over InfiniBand or RoCE. The cxi devices of
// Slingshot need a plugin.
func hasVerbs(inv netif.Inventory) bool {
	for _, l := range inv.Links {
		if l.HCA != "" && !strings.HasPrefix(l.HCA, "cxi") && canCarryTraffic(l) {
			return true
		}
	}
	return false
}

func hasAnyPrefix(name string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}
