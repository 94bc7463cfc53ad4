package netif

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
)

// validateFabric checks the rules, adapters, and GPUs.
func (inv *Inventory) validateFabric() error {
	switch {
	case len(inv.Rules) > maxRules:
		return fmt.Errorf("has %d rules, more than %d", len(inv.Rules), maxRules)
	case len(inv.RDMA) > maxRDMA:
		return fmt.Errorf("has %d RDMA devices, more than %d", len(inv.RDMA), maxRDMA)
	case len(inv.GPUs) > maxGPUs:
		return fmt.Errorf("has %d GPUs, more than %d", len(inv.GPUs), maxGPUs)
	}
	for _, r := range inv.Rules {
		if err := r.validate(); err != nil {
			return fmt.Errorf("rule %d: %w", r.Priority, err)
		}
	}
	devices := make(map[string]bool, len(inv.RDMA))
	for _, d := range inv.RDMA {
		if devices[d.Name] {
			return fmt.Errorf("RDMA device %q: is listed twice", d.Name)
		}
		devices[d.Name] = true
		if err := d.validate(); err != nil {
			return fmt.Errorf("RDMA device %q: %w", d.Name, err)
		}
	}
	for _, g := range inv.GPUs {
		if err := checkWord(g.PCI, maxWord); err != nil {
			return fmt.Errorf("GPU %q: %w", g.PCI, err)
		}
		if err := checkWord(g.Path, maxPath); err != nil {
			return fmt.Errorf("GPU %q: path %q: %w", g.PCI, g.Path, err)
		}
	}
	return nil
}

func (r *Rule) validate() error {
	for _, p := range []netip.Prefix{r.From, r.To} {
		if p.IsValid() && (p.Addr().Is4In6() || p != p.Masked()) {
			return fmt.Errorf("%s is not a network (bits are set after the prefix)", p)
		}
	}
	if r.From.IsValid() && r.To.IsValid() && r.From.Addr().Is4() != r.To.Addr().Is4() {
		return fmt.Errorf("from %s to %s are of two families", r.From, r.To)
	}
	for _, name := range []string{r.IIF, r.OIF} { // a rule may name a link that no longer exists
		if err := checkWord(name, maxName); err != nil {
			return fmt.Errorf("interface %q: %w", name, err)
		}
	}
	byTable := r.Action == "" && r.Goto == 0
	switch {
	case r.Action != "" && !slices.Contains([]string{Blackhole, Unreachable, Prohibit}, r.Action):
		return fmt.Errorf("action %q is not %s, %s or %s", r.Action, Blackhole, Unreachable, Prohibit)
	case r.Goto != 0 && (r.Goto <= r.Priority || r.Goto > math.MaxUint32):
		return fmt.Errorf("goes to %d, which is not after it", r.Goto)
	case r.Goto != 0 && r.Action != "":
		return fmt.Errorf("both drops packets (%s) and goes to %d", r.Action, r.Goto)
	case !byTable && (r.Table != 0 || r.Suppress != nil):
		return fmt.Errorf("has a table or suppresses routes, although no table decides")
	case r.Priority < 0 || r.Priority > math.MaxUint32:
		return fmt.Errorf("priority is not between 0 and %d", uint32(math.MaxUint32))
	case byTable && (r.Table < 1 || r.Table > math.MaxUint32):
		return fmt.Errorf("table %d is not between 1 and %d", r.Table, uint32(math.MaxUint32))
	case r.Suppress != nil && (*r.Suppress < 0 || *r.Suppress > 128):
		return fmt.Errorf("suppresses routes of %d bits, which is not between 0 and 128", *r.Suppress)
	}
	return nil
}

func (d *RDMADevice) validate() error {
	if d.Name == "" {
		return fmt.Errorf("has no name")
	}
	for _, word := range []string{d.Name, d.PCI} {
		if err := checkWord(word, maxWord); err != nil {
			return fmt.Errorf("%q: %w", word, err)
		}
	}
	if len(d.Ports) > maxPorts {
		return fmt.Errorf("has %d ports, more than %d", len(d.Ports), maxPorts)
	}
	for _, p := range d.Ports {
		if len(p.GIDs) > maxGIDs {
			return fmt.Errorf("port %d: has %d GIDs, more than %d", p.Number, len(p.GIDs), maxGIDs)
		}
		if p.Number < 1 || p.Number > maxPorts || p.Rate < -1 || p.Rate > math.MaxInt32 {
			return fmt.Errorf("port %d: number or rate %d is out of range", p.Number, p.Rate)
		}
		for _, word := range []string{p.LinkLayer, p.State} {
			if err := checkWord(word, maxWord); err != nil {
				return fmt.Errorf("port %d: %q: %w", p.Number, word, err)
			}
		}
		for _, g := range p.GIDs {
			if g.Index < 0 || g.Index >= maxGIDs || !g.Addr.Is6() || g.Addr.Zone() != "" {
				return fmt.Errorf("port %d: GID %d (%s) is not an IPv6 address with an index below %d", p.Number, g.Index, g.Addr, maxGIDs)
			}
			if err := checkWord(g.Link, maxName); err != nil {
				return fmt.Errorf("port %d: GID %d: interface %q: %w", p.Number, g.Index, g.Link, err)
			}
		}
	}
	return nil
}
