package interfaces

import (
	"strings"

	"github.com/ddpbatch/ddpbatch/netif"
)

// ncclMaxDevices is MAX_IFS of NCCL's socket code.
const ncclMaxDevices = 16

// NCCL227 is NCCL 2.27.7 and older, NCCL228 is 2.28.3 and newer (2.30.7,
// 5067397: src/misc/socket.cc and src/os/linux.cc), with no NCCL_* variable set.
//
// Names that start with "ib" come first; if there are none, all but docker*, lo*
// (and virbr* since 2.28), then these. Order is that of getifaddrs, one address
// for each interface, up to 16. Since 2.28 an interface must be running. The
// first is where ranks meet; all of them carry data, unless there is an adapter
// for InfiniBand or RoCE. Routes and the peers' addresses play no part.
//
// Left out: NCCL's choice among several data devices by distance to the GPU, net
// plugins, and nccl.conf.
func NCCL227(p Pair) Pick { return ncclPick(p.Here, false) }

// NCCL228 is the rule since 2.28: see [NCCL227].
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

// hasVerbs says whether NCCL would move data by InfiniBand or RoCE. Slingshot's
// cxi devices need a plugin.
func hasVerbs(inv netif.Inventory) bool {
	for _, l := range inv.Links {
		if l.HCA != "" && !strings.HasPrefix(l.HCA, "cxi") && carries(l) {
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
