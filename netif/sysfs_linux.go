package netif

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A sysfs reads the properties that netlink does not provide. All of them are optional: a
// container may have no sysfs, or a sysfs that shows the host's interfaces.
type sysfs struct {
	root string // mount point
}

func (s sysfs) path(elements ...string) string {
	return filepath.Join(append([]string{s.root}, elements...)...)
}

// fill sets the speed, bus address, driver, RDMA device, PCI path, and NUMA node of a link.
func (s sysfs) fill(l *Link, mac net.HardwareAddr) {
	dir := s.path("class", "net", l.Name)
	if !isSame(dir, l, mac) {
		return
	}
	if mbps, err := strconv.Atoi(readLine(dir, "speed")); err == nil && mbps > 0 {
		l.Speed = mbps
	}
	device, err := filepath.EvalSymlinks(filepath.Join(dir, "device"))
	if err != nil {
		return // a virtual link
	}
	if l.PCI == "" {
		l.PCI = filepath.Base(device)
	}
	if driver, err := os.Readlink(filepath.Join(device, "driver")); err == nil {
		l.Driver = filepath.Base(driver)
	}
	l.Path = s.devicePath(device)
	if node := s.numa(device); node >= 0 {
		l.NUMA = &node
	}
	// Directory "infiniband" holds verbs devices; "cxi" holds Slingshot devices.
	for _, class := range []string{"infiniband", "cxi"} {
		if found, err := os.ReadDir(filepath.Join(device, class)); err == nil && len(found) > 0 {
			l.HCA = found[0].Name()
			return
		}
	}
}

// devicePath returns the path of a device below /sys/devices, starting at its root complex. The
// path of device must not contain symbolic links.
func (s sysfs) devicePath(device string) string {
	root, err := filepath.EvalSymlinks(s.path("devices"))
	if err != nil {
		return ""
	}
	rel, err := filepath.Rel(root, device)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return ""
	}
	return rel
}

// numa returns the NUMA node of a device, or -1 if it is unknown. A device without a node,
// such as a virtio NIC, uses the node of the first device above it that has one.
func (s sysfs) numa(device string) int {
	for range strings.Count(s.devicePath(device), "/") + 1 {
		if node, err := strconv.Atoi(readLine(device, "numa_node")); err == nil {
			return max(node, -1)
		}
		device = filepath.Dir(device)
	}
	return -1
}

// isSame reports whether a sysfs directory describes this link, not a link of the same name in
// another network namespace. sysfs shows the namespace in which it was mounted.
func isSame(dir string, l *Link, mac net.HardwareAddr) bool {
	if readLine(dir, "ifindex") != strconv.Itoa(l.Index) {
		return false
	}
	address := readLine(dir, "address")
	return mac == nil || address == "" || address == mac.String()
}

// readLine reads a file of one line. It returns "" if the file does not exist.
func readLine(dir, name string) string {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// rdma returns the adapters in /sys/class/infiniband, by name.
func (s sysfs) rdma() []RDMADevice {
	found, _ := os.ReadDir(s.path("class", "infiniband"))
	var devices []RDMADevice
	for _, f := range found {
		dir := s.path("class", "infiniband", f.Name())
		d := RDMADevice{Name: f.Name(), NUMA: -1, Ports: []RDMAPort{}}
		if device, err := filepath.EvalSymlinks(filepath.Join(dir, "device")); err == nil {
			d.PCI = filepath.Base(device)
			d.Path = s.devicePath(device)
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
	p := RDMAPort{Number: number, LinkLayer: readLine(dir, "link_layer"), State: readLine(dir, "state"), Rate: portRate(readLine(dir, "rate")), GIDs: []GID{}}
	if _, state, numbered := strings.Cut(p.State, ": "); numbered { // "4: ACTIVE"
		p.State = state
	}
	gids, _ := os.ReadDir(filepath.Join(dir, "gids"))
	for _, g := range gids {
		index, err := strconv.Atoi(g.Name())
		if err != nil {
			continue
		}
		addr, err := netip.ParseAddr(readLine(filepath.Join(dir, "gids"), g.Name()))
		if err != nil || !addr.Is6() || addr.IsUnspecified() {
			continue
		}
		p.GIDs = append(p.GIDs, GID{
			Index: index,
			Addr:  addr,
			Type:  readLine(filepath.Join(dir, "gid_attrs", "types"), g.Name()),
			Link:  readLine(filepath.Join(dir, "gid_attrs", "ndevs"), g.Name()),
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
		class, vendor := readLine(dir, "class"), readLine(dir, "vendor")
		display := strings.HasPrefix(class, "0x03") && (vendor == vendorNVIDIA || vendor == vendorAMD)
		if !display && !(strings.HasPrefix(class, "0x1200") && vendor == vendorAMD) {
			continue
		}
		g := GPU{PCI: f.Name(), NUMA: -1, Vendor: NVIDIA}
		if vendor == vendorAMD {
			g.Vendor = AMD
		}
		if device, err := filepath.EvalSymlinks(dir); err == nil {
			g.Path = s.devicePath(device)
			g.NUMA = s.numa(device)
		}
		gpus = append(gpus, g)
	}
	return gpus
}
