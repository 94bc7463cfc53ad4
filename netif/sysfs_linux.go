package netif

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// sysfs reads what netlink does not tell. Everything in it is optional: a
// container may have no sysfs, or one that shows the host's interfaces.
type sysfs struct {
	root string // "" is /sys
}

// fill adds speed, bus address, driver and RDMA device to a link.
func (s sysfs) fill(l *Link, mac net.HardwareAddr) {
	root := s.root
	if root == "" {
		root = "/sys"
	}
	dir := filepath.Join(root, "class", "net", l.Name)
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
	// Verbs devices and Slingshot's own are the classes that a NIC's device has.
	for _, class := range []string{"infiniband", "cxi"} {
		if found, err := os.ReadDir(filepath.Join(device, class)); err == nil && len(found) > 0 {
			l.HCA = found[0].Name()
			return
		}
	}
}

// isSame says whether a folder of sysfs is about this link, and not about one
// of the same name in another network namespace: sysfs shows the namespace that
// it was mounted in.
func isSame(dir string, l *Link, mac net.HardwareAddr) bool {
	if line(dir, "ifindex") != strconv.Itoa(l.Index) {
		return false
	}
	address := line(dir, "address")
	return mac == nil || address == "" || address == mac.String()
}

// line reads a file of one line; "" if there is none.
func line(dir, name string) string {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
