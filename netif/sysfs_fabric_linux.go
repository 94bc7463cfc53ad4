package netif

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// rdma returns the adapters in /sys/class/infiniband, by name.
func (s sysfs) rdma() []RDMADevice {
	found, _ := os.ReadDir(s.path("class", "infiniband"))
	var devices []RDMADevice
	for _, f := range found {
		dir := s.path("class", "infiniband", f.Name())
		d := RDMADevice{Name: f.Name(), NUMA: -1, Ports: []RDMAPort{}}
		if device, err := filepath.EvalSymlinks(filepath.Join(dir, "device")); err == nil {
			d.PCI = filepath.Base(device)
			d.Path = s.place(device)
			d.NUMA = s.numa(device)
		}
		ports, _ := os.ReadDir(filepath.Join(dir, "ports"))
		for _, p := range ports {
			if number, err := strconv.Atoi(p.Name()); err == nil {
				d.Ports = append(d.Ports, readPort(filepath.Join(dir, "ports", p.Name()), number))
			}
		}
		slices.SortFunc(d.Ports, func(a, b RDMAPort) int { return a.Number - b.Number })
		devices = append(devices, d)
	}
	return devices
}

func readPort(dir string, number int) RDMAPort {
	p := RDMAPort{Number: number, LinkLayer: line(dir, "link_layer"), State: line(dir, "state"), Rate: portRate(line(dir, "rate")), GIDs: []GID{}}
	if _, state, numbered := strings.Cut(p.State, ": "); numbered { // "4: ACTIVE"
		p.State = state
	}
	gids, _ := os.ReadDir(filepath.Join(dir, "gids"))
	for _, g := range gids {
		index, err := strconv.Atoi(g.Name())
		if err != nil {
			continue
		}
		addr, err := netip.ParseAddr(line(filepath.Join(dir, "gids"), g.Name()))
		if err != nil || !addr.Is6() || addr.IsUnspecified() {
			continue
		}
		p.GIDs = append(p.GIDs, GID{
			Index: index,
			Addr:  addr,
			Type:  line(filepath.Join(dir, "gid_attrs", "types"), g.Name()),
			Link:  line(filepath.Join(dir, "gid_attrs", "ndevs"), g.Name()),
		})
	}
	slices.SortFunc(p.GIDs, func(a, b GID) int { return a.Index - b.Index })
	return p
}

// portRate parses a rate such as "400 Gb/sec (4X NDR)" and returns Mb/s, or -1 if unknown.
func portRate(text string) int {
	number, unit, _ := strings.Cut(text, " ")
	gbps, err := strconv.ParseFloat(number, 64)
	if err != nil || gbps <= 0 || gbps > 1e6 || !strings.HasPrefix(unit, "Gb/sec") {
		return -1
	}
	return int(gbps*1000 + 0.5)
}

const (
	vendorNVIDIA = "0x10de"
	vendorAMD    = "0x1002"
)

// gpus returns the GPUs on the PCI bus, by address. Display controllers have class 0x03. AMD
// Instinct GPUs since the MI300 are processing accelerators, class 0x12.
func (s sysfs) gpus() []GPU {
	found, _ := os.ReadDir(s.path("bus", "pci", "devices"))
	var gpus []GPU
	for _, f := range found {
		dir := s.path("bus", "pci", "devices", f.Name())
		class, vendor := line(dir, "class"), line(dir, "vendor")
		display := strings.HasPrefix(class, "0x03") && (vendor == vendorNVIDIA || vendor == vendorAMD)
		if !display && !(strings.HasPrefix(class, "0x1200") && vendor == vendorAMD) {
			continue
		}
		g := GPU{PCI: f.Name(), NUMA: -1}
		if device, err := filepath.EvalSymlinks(dir); err == nil {
			g.Path = s.place(device)
			g.NUMA = s.numa(device)
		}
		gpus = append(gpus, g)
	}
	return gpus
}
