package netif

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A sysfs reads the properties that netlink does not provide. All of them are optional: a
// container may have no sysfs, or a sysfs that shows the host's interfaces.
type sysfs struct {
	root string // "" is /sys
}

func (s sysfs) path(elements ...string) string {
	root := s.root
	if root == "" {
		root = "/sys"
	}
	return filepath.Join(append([]string{root}, elements...)...)
}

// fill sets the speed, bus address, driver, RDMA device, PCI path, and NUMA node of a link.
func (s sysfs) fill(l *Link, mac net.HardwareAddr) {
	dir := s.path("class", "net", l.Name)
	if !isSame(dir, l, mac) {
		return
	}
	if mbps, err := strconv.Atoi(line(dir, "speed")); err == nil && mbps > 0 {
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
	l.Path = s.place(device)
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

// place returns the path of a device below /sys/devices, starting at its root complex. The
// path of device must not contain symbolic links.
func (s sysfs) place(device string) string {
	root, err := filepath.EvalSymlinks(s.path("devices"))
	if err != nil {
		return ""
	}
	rel, err := filepath.Rel(root, device)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") || len(rel) > maxPath {
		return ""
	}
	return rel
}

// numa returns the NUMA node of a device, or -1 if it is unknown. A device without a node,
// such as a virtio NIC, uses the node of the first device above it that has one.
func (s sysfs) numa(device string) int {
	for range strings.Count(s.place(device), "/") + 1 {
		if node, err := strconv.Atoi(line(device, "numa_node")); err == nil {
			return max(node, -1)
		}
		device = filepath.Dir(device)
	}
	return -1
}

// isSame reports whether a sysfs directory describes this link, not a link of the same name in
// another network namespace. sysfs shows the namespace in which it was mounted.
func isSame(dir string, l *Link, mac net.HardwareAddr) bool {
	if line(dir, "ifindex") != strconv.Itoa(l.Index) {
		return false
	}
	address := line(dir, "address")
	return mac == nil || address == "" || address == mac.String()
}

// line reads a file of one line. It returns "" if the file does not exist.
func line(dir, name string) string {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
