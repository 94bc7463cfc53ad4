package netif

import "slices"

// A class orders links by how close they are to hardware. Higher is closer: devices first,
// then virtual links that forward packets unchanged, then tunnels, and last links that stay
// inside this host.
type class int

const (
	classLocal    class = iota // a bridge without a device, a dummy: no sign that it leads out of the host
	classTunnel                // encapsulates packets: vxlan, wireguard, tun, ...
	classPair                  // a container's veth; its other end is in the host's namespace
	classPassed                // a macvlan, ipvlan, or vlan on a device of another namespace
	classHardware              // a device, or a virtual link on top of one
)

// String returns the end of a sentence that starts with "it is".
func (c class) String() string {
	switch c {
	case classHardware:
		return "hardware"
	case classPassed:
		return "passed on from the host's device"
	case classPair:
		return "a container's own way out"
	case classTunnel:
		return "a tunnel"
	}
	return "inside this host"
}

// tunnels are the kernel's link kinds that encapsulate packets.
var tunnels = []string{
	"tun", "wireguard", "vxlan", "geneve", "gre", "gretap", "ip6gre", "ip6gretap", "erspan", "ip6erspan",
	"ipip", "sit", "ip6tnl", "vti", "vti6", "xfrm", "bareudp", "gtp", "ppp", "amt", "ovpn",
}

// classOf returns the class of a link on its own. A lower device may raise it.
func (h *host) classOf(l *Link) class {
	switch {
	case isHardware(l):
		return classHardware
	case passesOn(l.Kind) && h.byName[l.Parent] == nil:
		return classPassed
	case l.Kind == "veth" || l.Kind == "netkit":
		if m := h.byName[l.Master]; m != nil && m.Kind == "bridge" {
			return classLocal // the host's end of a container's veth
		}
		return classPair
	case slices.Contains(tunnels, l.Kind) || l.ARPHRD == "ppp":
		return classTunnel
	}
	return classLocal
}

// slowestFabric is the speed in Mb/s of the slowest InfiniBand (4X SDR). A slower NIC with
// RDMA, such as a 1 Gb/s iWARP NIC, is not a fast network.
const slowestFabric = 10000

// isFabric reports whether a device belongs to a data network for compute nodes: RDMA, or
// Slingshot, which has its own protocol.
func isFabric(l *Link) bool {
	return (l.HCA != "" || l.ARPHRD == "infiniband") && (l.Speed <= 0 || l.Speed >= slowestFabric)
}

// passesOn reports whether links of this kind pass packets to their parent unchanged.
func passesOn(kind string) bool {
	switch kind {
	case "vlan", "macvlan", "macvtap", "ipvlan", "ipvtap", "ipoib":
		return true
	}
	return false
}

// isHardware reports whether a link is itself a device and not a construct of the kernel. A
// device that was moved into a container may lack its bus address, but it has no kind.
func isHardware(l *Link) bool {
	if l.ARPHRD == arphrdLoopback {
		return false
	}
	return l.PCI != "" || l.ARPHRD == "infiniband" || l.Kind == "" && l.ARPHRD == "ether"
}

// speed returns the speed of a link in Mb/s, or -1 if it is unknown. Virtual links report an
// arbitrary speed (veth and bridges report 10 Gb/s). Only the speed of a device or of a bond
// of devices counts.
func (h *host) speed(l *Link, depth int) int {
	ports := h.ports[l.Name]
	bond := l.Kind != "bridge" && slices.ContainsFunc(ports, isHardware)
	if (isHardware(l) || bond) && l.Speed > 0 {
		return l.Speed
	}
	if depth == 0 {
		return -1
	}
	if parent := h.byName[l.Parent]; parent != nil && passesOn(l.Kind) {
		return h.speed(parent, depth-1)
	}
	fastest := -1
	for _, p := range ports {
		fastest = max(fastest, h.speed(p, depth-1))
	}
	return fastest
}
