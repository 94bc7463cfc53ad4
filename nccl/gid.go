package nccl

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/netif"
)

const (
	roceV1 = "IB/RoCE v1"
	roceV2 = "RoCE v2"
)

// reaches reports whether a port's own links lead to another port's addresses, by subnet or by
// route.
func (r *rail) reaches(other *rail, routes []netif.Route) bool {
	return slices.ContainsFunc(other.addresses(), func(to netip.Prefix) bool { return r.reachesAddr(to.Addr(), routes) })
}

func (r *rail) reachesAddr(to netip.Addr, routes []netif.Route) bool {
	return slices.ContainsFunc(r.addresses(), func(own netip.Prefix) bool { return own.Contains(to) }) ||
		slices.ContainsFunc(routes, func(route netif.Route) bool { return route.Dst.Contains(to) && r.isOn(route.Dev) })
}

// setGID selects the GID of RoCE ports. Since version 2.21, NCCL selects it automatically: the
// first GID of RoCE v2 and IPv4.
func (p *planner) setGID() {
	if len(p.rails) == 0 || p.rails[0].layer != ethernet {
		for _, name := range []string{ibGID, ibAddrFamily, ibAddrRange} {
			p.keepExisting(name, func(string) assessment { return accept("no effect: this host has no RoCE port") })
		}
		return
	}
	p.setGIDFamily()
	p.setGIDRange()
	p.setGIDIndex()
}

// setGIDIndex decides on NCCL_IB_GID_INDEX, one index for all ports of a host.
func (p *planner) setGIDIndex() {
	index, why := p.commonGID()
	assess := func(value string) assessment {
		n := atoi(value)
		if n < 0 {
			return accept("NCCL selects the address, since 2.21")
		}
		for i := range p.rails {
			if text := p.rails[i].assessGID(n); text != "" {
				return reject("%s", text)
			}
		}
		return accept("every port has a RoCE address at this index")
	}
	if p.keepExisting(ibGID, assess) {
		return
	}
	switch {
	case p.Version >= dynamicGID:
		return
	case why != "" && p.Version == 0:
		p.env.note("%s, which NCCL before 2.21 requires, has no valid value on this host: %s", ibGID, why)
	case why != "":
		p.env.warn("%s is not set, but NCCL %s requires it: %s; use NCCL 2.21 or later", ibGID, versionText(p.Version), why)
	case p.Version == 0 && index > 0:
		p.env.note("NCCL before 2.21 requires %s=%d; it is not set because the version of NCCL is unknown", ibGID, index)
	case p.Version > 0:
		p.add(ibGID, strconv.Itoa(index), "the address %s of %s on %s; NCCL %s uses index 0 by default",
			p.rails[0].addressAt(index), roceV2, &p.rails[0], versionText(p.Version))
	}
}

// commonGID returns the GID index that is usable on all ports, or the reason why there is no
// such index.
func (p *planner) commonGID() (index int, why string) {
	found := make([]string, len(p.rails))
	common := []int(nil)
	for i := range p.rails {
		r := &p.rails[i]
		usable := r.usableGIDs()
		if len(usable) == 0 {
			if len(r.gids) == 0 {
				return 0, fmt.Sprintf("the GID table of %s is unreadable", r)
			}
			return 0, fmt.Sprintf("%s has no global address of %s", r, roceV2)
		}
		found[i] = fmt.Sprintf("%s has %s", r, gidIndexText(usable))
		var here []int
		for _, g := range preferred(usable, r, &p.Choice) {
			here = append(here, g.Index)
		}
		if common == nil {
			common = here
		} else {
			common = slices.DeleteFunc(common, func(n int) bool { return !slices.Contains(here, n) })
		}
	}
	if len(common) == 0 {
		return 0, "one index applies to all ports, but their addresses have different indices: " + strings.Join(found, ", ")
	}
	return common[0], ""
}

// usableGIDs returns the routable GIDs of RoCE v2, by index. It returns IPv4 GIDs, or IPv6
// GIDs if the port does not have any IPv4 GIDs.
func (r *rail) usableGIDs() []netif.GID {
	var v4, v6 []netif.GID
	for _, g := range r.gids {
		switch {
		case g.Type != roceV2 || !g.Addr.Unmap().IsGlobalUnicast():
		case g.Addr.Is4In6():
			v4 = append(v4, g)
		default:
			v6 = append(v6, g)
		}
	}
	found := v4
	if len(v4) == 0 {
		found = v6
	}
	slices.SortFunc(found, func(a, b netif.GID) int { return a.Index - b.Index })
	return found
}

// preferred narrows the GIDs to the chosen address if the port has it.
func preferred(gids []netif.GID, r *rail, c *netif.Choice) []netif.GID {
	if !r.isBelow(c) {
		return gids
	}
	for _, g := range gids {
		if g.Addr.Unmap() == c.Addr {
			return []netif.GID{g}
		}
	}
	return gids
}

func gidIndexText(gids []netif.GID) string {
	words := make([]string, len(gids))
	for i, g := range gids {
		words[i] = fmt.Sprintf("%s at %d", g.Addr.Unmap(), g.Index)
	}
	return strings.Join(words, " and ")
}

func (r *rail) addressAt(index int) netip.Addr {
	for _, g := range r.gids {
		if g.Index == index {
			return g.Addr.Unmap()
		}
	}
	return netip.Addr{}
}

// assessGID describes the problem of a GID index on a port, or returns "".
func (r *rail) assessGID(index int) string {
	if len(r.gids) == 0 {
		return ""
	}
	for _, g := range r.gids {
		if g.Index != index {
			continue
		}
		switch addr := g.Addr.Unmap(); {
		case g.Type == roceV1:
			return fmt.Sprintf("index %d of %s is %s of RoCE v1, which is not routed", index, r, addr)
		case !addr.IsGlobalUnicast():
			return fmt.Sprintf("index %d of %s is the link-local address %s", index, r, addr)
		}
		return ""
	}
	return fmt.Sprintf("%s has no address at index %d", r, index)
}

// setGIDFamily decides on NCCL_IB_ADDR_FAMILY, because by default NCCL only accepts IPv4.
func (p *planner) setGIDFamily() {
	var six *rail
	for i := range p.rails {
		if g := p.rails[i].usableGIDs(); len(g) > 0 && !g[0].Addr.Is4In6() {
			six = &p.rails[i]
			break
		}
	}
	assess := func(value string) assessment {
		if six != nil && value != "AF_INET6" {
			return reject("%s has only IPv6 addresses: set it to AF_INET6", six)
		}
		return accept("the family of the RoCE addresses")
	}
	if p.keepExisting(ibAddrFamily, assess) || six == nil || p.Version > 0 && p.Version < dynamicGID {
		return
	}
	p.add(ibAddrFamily, "AF_INET6", "%s has only IPv6 addresses, and NCCL uses IPv4 by default", six)
}

// setGIDRange decides on NCCL_IB_ADDR_RANGE, because NCCL picks any of a port's several
// addresses.
func (p *planner) setGIDRange() {
	if p.keepExisting(ibAddrRange, func(string) assessment { return accept("the network of the RoCE addresses") }) {
		return
	}
	if p.Version > 0 && p.Version < dynamicGID || !p.Choice.Prefix.IsValid() {
		return
	}
	several := false
	for i := range p.rails {
		inside, outside := 0, 0
		for _, g := range p.rails[i].usableGIDs() {
			if p.Choice.Prefix.Contains(g.Addr.Unmap()) {
				inside++
			} else {
				outside++
			}
		}
		if inside == 0 {
			return // rails of other networks, which a single range cannot express
		}
		several = several || outside > 0
	}
	if several {
		p.add(ibAddrRange, p.Choice.Prefix.String(), "RoCE ports have addresses in several networks; this one was chosen")
	}
}
