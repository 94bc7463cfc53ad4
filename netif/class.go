package netif

import "slices"

// class says how far a link is from a wire. The order counts: a device goes
// before what the kernel or a program makes up, and of that, what passes packets
// on before what wraps them, and last what is for inside this host.
type class int

const (
	classLocal    class = iota // a bridge without a device, a dummy: nothing says that it leads out
	classTunnel                // wraps packets in others: vxlan, wireguard, tun ...
	classPair                  // a container's veth: its other end is the host's
	classPassed                // a macvlan, ipvlan or vlan on a device of another namespace
	classHardware              // a device, or what stands on one
)

// String completes the sentence "it is ...".
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

// tunnels are the kernel's kinds of links that wrap packets.
var tunnels = []string{
	"tun", "wireguard", "vxlan", "geneve", "gre", "gretap", "ip6gre", "ip6gretap", "erspan", "ip6erspan",
	"ipip", "sit", "ip6tnl", "vti", "vti6", "xfrm", "bareudp", "gtp", "ppp", "amt", "ovpn",
}

// classOf judges a link for itself; what it stands on may raise it.
func (h *host) classOf(l *Link) class {
	switch {
	case isHardware(l):
		return classHardware
	case passesOn(l.Kind) && h.byName[l.Parent] == nil:
		return classPassed
	case l.Kind == "veth" || l.Kind == "netkit":
		if m := h.byName[l.Master]; m != nil && m.Kind == "bridge" {
			return classLocal // the host's end of a container's
		}
		return classPair
	case slices.Contains(tunnels, l.Kind) || l.ARPHRD == "ppp":
		return classTunnel
	}
	return classLocal
}

// slowestFabric is the speed in Mb/s of the slowest InfiniBand (4X SDR). A NIC
// with RDMA below that (there are such of 1 Gb/s, with iWARP) is no fast network.
const slowestFabric = 10000

// isFabric says whether a device is of a network made for moving data between
// hosts: one with RDMA, or Slingshot, which has its own.
func isFabric(l *Link) bool {
	return (l.HCA != "" || l.ARPHRD == "infiniband") && (l.Speed <= 0 || l.Speed >= slowestFabric)
}

// passesOn says whether links of this kind hand packets to their parent as they are.
func passesOn(kind string) bool {
	switch kind {
	case "vlan", "macvlan", "macvtap", "ipvlan", "ipvtap", "ipoib":
		return true
	}
	return false
}

// isHardware says whether a link, taken for itself, is a device and not a
// construct of the kernel. A device passed into a container may have lost its
// bus address, but has no kind.
func isHardware(l *Link) bool {
	if l.ARPHRD == arphrdLoopback {
		return false
	}
	return l.PCI != "" || l.ARPHRD == "infiniband" || l.Kind == "" && l.ARPHRD == "ether"
}

// speed is the speed of a link in Mb/s, or -1 if it is not known. A virtual link
// reports a speed too (veth and bridges say 10 Gb/s), but one that is made up:
// only a device's own word counts, or that of a bond of devices.
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
