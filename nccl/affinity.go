package nccl

import (
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/netif"
)

// Distance classes of two devices, nearest first. They are NCCL's (graph/topo.h).
const (
	sameSwitch       = iota // PIX, PXB: below one root port, connected only by switches
	sameRoot                // PHB: through one host bridge
	sameNode                // NODE: on one NUMA node
	differentSockets        // SYS: on different sockets
	unknownNode             // neither paths nor NUMA nodes are known
)

// A distance is a class and, within it, the number of bridges between two devices.
type distance struct{ class, hops int }

func (d distance) isLess(other distance) bool {
	return d.class < other.class || d.class == other.class && d.hops < other.hops
}

// components returns the components of a device path, starting at its root complex.
func components(path string) []string {
	var parts []string
	for part := range strings.SplitSeq(path, "/") {
		if strings.HasPrefix(part, "pci") || strings.Contains(part, ":") {
			parts = append(parts, part)
		}
	}
	return parts
}

// pciDistance returns the distance between a GPU and a port.
func pciDistance(g *netif.GPU, r *rail) distance {
	a, b := components(g.Path), r.path
	common := 0
	for common < len(a) && common < len(b) && a[common] == b[common] {
		common++
	}
	hops := len(a) + len(b) - 2*common
	roots := 0 // a path may start with its root complex
	if common > 0 && strings.HasPrefix(a[0], "pci") {
		roots = 1
	}
	switch {
	case common > roots:
		return distance{sameSwitch, hops}
	case common > 0:
		return distance{sameRoot, hops}
	case g.NUMA >= 0 && g.NUMA == r.numa:
		return distance{sameNode, 0}
	case g.NUMA >= 0 && r.numa >= 0, len(a) > 0 && len(b) > 0 && g.NUMA < 0 && r.numa < 0:
		return distance{differentSockets, 0}
	}
	return distance{unknownNode, 0}
}

// nearest returns the indices of the ports closest to a GPU, and their distance.
func nearest(g *netif.GPU, rails []rail) (at []int, d distance) {
	d = distance{unknownNode + 1, 0}
	for i := range rails {
		switch new := pciDistance(g, &rails[i]); {
		case new.isLess(d):
			d, at = new, []int{i}
		case new == d:
			at = append(at, i)
		}
	}
	return at, d
}

// portsFarFromGPUs returns the ports in rails that share a switch with no GPU: they are for storage.
// It returns nil if a GPU shares a switch with no port in all, which also has the ports without a
// carrier, or if no other port in rails would be left.
func portsFarFromGPUs(rails, all []rail, gpus []netif.GPU) map[string]bool {
	if len(gpus) == 0 {
		return nil
	}
	far := map[string]bool{}
	for i := range rails {
		if len(rails[i].path) == 0 {
			return nil
		}
		far[rails[i].String()] = true
	}
	for i := range gpus {
		at, d := nearest(&gpus[i], all)
		if d.class != sameSwitch {
			return nil
		}
		for _, r := range at {
			delete(far, all[r].String())
		}
	}
	if len(far) == len(rails) {
		return nil // no other port is left
	}
	return far
}

// railOf returns the port for a library that uses a single port. It returns the port closest
// to the rank's GPU. GPUs that are equally close to several ports are distributed among them.
// p.rails must not be empty.
func (p *planner) railOf() (r *rail, gpu *netif.GPU, d distance) {
	gpu = p.gpu()
	if gpu == nil {
		for i := range p.rails {
			if p.rails[i].isBelow(&p.Choice) {
				return &p.rails[i], nil, d
			}
		}
		return &p.rails[p.LocalRank%len(p.rails)], nil, d
	}
	at, d := nearest(gpu, p.rails)
	turn := 0
	for i := range p.Inventory.GPUs {
		g := &p.Inventory.GPUs[i]
		if g == gpu {
			break
		}
		if others, _ := nearest(g, p.rails); others[0] == at[0] && len(others) == len(at) {
			turn++
		}
	}
	return &p.rails[at[turn%len(at)]], gpu, d
}

// gpu returns the rank's GPU, or nil if it is unknown. It uses the bus address or else the
// local rank, as an index into the visible GPUs in bus order.
func (p *planner) gpu() *netif.GPU {
	gpus := p.Inventory.GPUs
	if p.GPU != "" {
		for i := range gpus {
			if sameBus(gpus[i].PCI, p.GPU) {
				return &gpus[i]
			}
		}
		return nil
	}
	n := p.LocalRank
	for _, name := range []string{"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"} {
		visible, set := p.Lookup(name)
		if !set || visible == "" {
			continue
		}
		list := strings.Split(visible, ",")
		if len(list) == 1 {
			n = 0 // each rank sees only its own GPU
		}
		if n < 0 || n >= len(list) {
			return nil
		}
		number, err := strconv.Atoi(strings.TrimSpace(list[n]))
		if err != nil {
			return nil // a UUID
		}
		n = number
		break
	}
	if n < 0 || n >= len(gpus) {
		return nil
	}
	return &gpus[n]
}

// sameBus compares PCI bus addresses. NVML writes eight digits of the domain, sysfs writes
// four, and tools differ in letter case.
func sameBus(a, b string) bool {
	short := func(s string) string {
		s = strings.ToLower(s)
		if domain, rest, ok := strings.Cut(s, ":"); ok {
			return strings.TrimLeft(domain, "0") + ":" + rest
		}
		return s
	}
	return short(a) == short(b)
}

// noteAffinity adds a note if the rank's GPU and its port are on different sockets.
func (p *planner) noteAffinity(r *rail, gpu *netif.GPU, d distance) {
	if gpu != nil && d.class == differentSockets {
		p.env.note("GPU %s (NUMA node %d) and its closest adapter %s (NUMA node %d) are on different sockets; traffic crosses the inter-socket link",
			gpu.PCI, gpu.NUMA, r, r.numa)
	}
}
