package netif

import (
	"net/netip"
	"slices"
)

// maxCasesWork is the maximum number of combinations in the input of ReadCases, which take about 20 ns
// each. A host with 50 addresses, 500 routes and rules, and 16,384 peers has 4e8.
const maxCasesWork = 2e9

// pair is the number of combinations that two links count for: their names, kinds, and speeds are
// compared.
const pair = 16

// work returns the number of combinations that a choice and its environment variables may compare: the
// route from each address to each peer, the equal routes to each peer with all rules, links, devices, and
// settings in pairs, and the ports of RDMA adapters in pairs.
func (c *Case) work() float64 {
	addrs, things := 1, len(c.Links)+len(c.RDMA)+len(c.GPUs)+len(c.Settings)
	for i := range c.Links {
		addrs += len(c.Links[i].Addrs)
	}
	for i := range c.RDMA {
		for _, port := range c.RDMA[i].Ports {
			things += 1 + len(port.GIDs)
		}
	}
	peers, routes := float64(len(c.Peers)+1), float64(len(c.Routes)+len(c.Rules)+1)
	work := float64(addrs)*peers*routes + pair*float64(things+addrs)*float64(things+addrs)
	equal := float64(c.equalRoutes())
	work += peers * equal * (equal + float64(len(c.Rules)+addrs+len(c.Links)))
	if work <= maxCasesWork {
		work += c.portWork()
	}
	return work
}

// equalRoutes returns the largest number of routes to one destination. A route with several next hops has
// one for each.
func (c *Case) equalRoutes() int {
	type destination struct {
		net   netip.Prefix
		table int
	}
	most, routes := 1, map[destination]int{}
	for _, r := range c.Routes {
		at := destination{r.Dst, mainIsZero(r.Table)}
		routes[at]++
		most = max(most, routes[at])
	}
	return most
}

// portWork returns the number of combinations that package nccl may compare. It finds the links of each
// RDMA port, and then the routes from the links of each port to the addresses of each other port.
func (c *Case) portWork() float64 {
	byName, above := map[string]*Link{}, map[string][]*Link{}
	for i := range c.Links {
		l := &c.Links[i]
		byName[l.Name] = l
		if l.Parent != "" {
			above[l.Parent] = append(above[l.Parent], l)
		}
	}
	links, addrs := 0.0, 0.0 // of all ports
	addPort := func(names []string) {
		seen := map[*Link]bool{}
		for len(names) > 0 {
			l := byName[names[len(names)-1]]
			names = names[:len(names)-1]
			if l == nil || seen[l] {
				continue
			}
			seen[l] = true
			links++
			addrs += float64(len(l.Addrs))
			names = append(names, l.Master)
			for _, a := range above[l.Name] {
				names = append(names, a.Name)
			}
		}
	}
	limit := maxCasesWork / float64(pair*(1+len(c.Links))) // of links
	for i := range c.RDMA {
		d := &c.RDMA[i]
		var own []string
		for k := range c.Links {
			if l := &c.Links[k]; l.HCA == d.Name || l.PCI != "" && l.PCI == d.PCI {
				own = append(own, l.Name)
			}
		}
		for _, port := range d.Ports {
			names := slices.Clone(own)
			for _, g := range port.GIDs {
				names = append(names, g.Link)
			}
			if addPort(names); links > limit {
				break
			}
		}
	}
	for i := range c.Links {
		if l := &c.Links[i]; len(c.RDMA) == 0 && l.HCA != "" && links <= limit {
			addPort([]string{l.Name})
		}
	}
	return pair*links*float64(1+len(c.Links)) + addrs*(addrs+float64(len(c.Routes))*links)
}
