package netif

import (
	"fmt"
	"slices"
	"strings"
)

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
		return "attached to a device of the host"
	case classPair:
		return "a container's veth"
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
	case forwardsToParent(l.Kind) && h.byName[l.Parent] == nil:
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

// forwardsToParent reports whether links of this kind pass packets to their parent unchanged.
func forwardsToParent(kind string) bool {
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
	// An inventory can have a cycle of links with many ports, so that there are too many paths.
	key := speedKey{l.Name, depth}
	fastest, known := h.speeds[key]
	if !known {
		fastest = h.lowerSpeed(l, ports, depth)
		h.speeds[key] = fastest
	}
	return fastest
}

// A speedKey identifies a result of speed: the link, and the number of links below it that count.
type speedKey struct {
	link  string
	depth int
}

// lowerSpeed returns the speed of the link below a virtual link, or of its fastest port.
func (h *host) lowerSpeed(l *Link, ports []*Link, depth int) int {
	if parent := h.byName[l.Parent]; parent != nil && forwardsToParent(l.Kind) {
		return h.speed(parent, depth-1)
	}
	fastest := -1
	for _, p := range ports {
		fastest = max(fastest, h.speed(p, depth-1))
	}
	return fastest
}

// A rating holds the properties that criteria compare. For a network, each value is the worst
// of its hosts.
type rating struct {
	preferred    bool // by the caller
	class        class
	kind         string // of the virtual link, for messages
	rdma         bool
	speed        int // Mb/s, -1 if unknown
	mtu          int // bytes
	defaultRoute bool
	index        int
}

// worst merges the ratings of one network on two hosts. It retains the higher index, so that
// the order of the hosts does not matter.
func (r rating) worst(o rating) rating {
	if o.class < r.class {
		r.class, r.kind = o.class, o.kind
	}
	r.preferred = r.preferred && o.preferred
	r.rdma = r.rdma && o.rdma
	r.speed = min(r.speed, o.speed)
	r.mtu = min(r.mtu, o.mtu)
	r.defaultRoute = r.defaultRoute && o.defaultRoute
	r.index = max(r.index, o.index)
	return r
}

// A criterion compares candidates by one property.
type criterion struct {
	// value returns the property; higher is better. A candidate with an unknown value neither
	// beats another candidate nor loses to it.
	value func(rating) (v int, known bool)
	// reasonFor describes the winner's advantage.
	reasonFor func(rating) string
	// reasonAgainst describes what the loser lacks. name is the interface of the better
	// candidate.
	reasonAgainst func(loser, better rating, name string) string
}

// criteria are applied in this order. Each one compares only the candidates that remain.
var criteria = []criterion{
	{
		value:         func(r rating) (int, bool) { return boolToInt(r.preferred), true },
		reasonFor:     func(rating) string { return "the configured preference" },
		reasonAgainst: func(_, _ rating, name string) string { return fmt.Sprintf("%s is preferred by configuration", name) },
	},
	{
		value:     func(r rating) (int, bool) { return int(r.class), true },
		reasonFor: func(r rating) string { return r.class.String() },
		reasonAgainst: func(l, b rating, name string) string {
			return fmt.Sprintf("it is virtual (%s) and %s is %s", l.kind, name, b.class)
		},
	},
	{
		value:         func(r rating) (int, bool) { return boolToInt(r.rdma), true },
		reasonFor:     func(rating) string { return "RDMA" },
		reasonAgainst: func(_, _ rating, name string) string { return fmt.Sprintf("it does not have RDMA, and %s does", name) },
	},
	{
		value:     func(r rating) (int, bool) { return r.speed, r.speed > 0 },
		reasonFor: func(r rating) string { return speedText(r.speed) },
		reasonAgainst: func(l, b rating, name string) string {
			return fmt.Sprintf("it is slower: %s against %s on %s", speedText(l.speed), speedText(b.speed), name)
		},
	},
	{
		value:     func(r rating) (int, bool) { return r.mtu, true },
		reasonFor: func(r rating) string { return fmt.Sprintf("mtu %d", r.mtu) },
		reasonAgainst: func(l, b rating, name string) string {
			return fmt.Sprintf("its mtu is smaller: %d against %d on %s", l.mtu, b.mtu, name)
		},
	},
	{
		value:         func(r rating) (int, bool) { return boolToInt(r.defaultRoute), true },
		reasonFor:     func(rating) string { return "the default route" },
		reasonAgainst: func(_, _ rating, name string) string { return fmt.Sprintf("the default route is on %s", name) },
	},
	{
		value:         func(r rating) (int, bool) { return -r.index, true },
		reasonFor:     func(rating) string { return "a lower index" },
		reasonAgainst: func(_, _ rating, name string) string { return fmt.Sprintf("%s is equal and comes first", name) },
	},
}

// A defeat is the criterion that eliminated a candidate, and the index of the better candidate.
type defeat struct {
	criterion *criterion
	to        int
}

// A selection is the result of selectBest.
type selection struct {
	winner  int
	defeats []defeat     // by candidate; zero for the winner
	merits  []*criterion // criteria that distinguished the winner, in order
}

// selectBest returns the best of at least one rating. The first of several equal ratings wins.
func selectBest(rs []rating) selection {
	out := selection{defeats: make([]defeat, len(rs))}
	remaining := make([]int, len(rs))
	for i := range rs {
		remaining[i] = i
	}
	for c := range criteria {
		q := &criteria[c]
		best, top := -1, 0
		for _, i := range remaining {
			if v, known := q.value(rs[i]); known && (best < 0 || v > top) {
				best, top = i, v
			}
		}
		var left []int
		for _, i := range remaining {
			if v, known := q.value(rs[i]); known && v < top {
				out.defeats[i] = defeat{criterion: q, to: best}
			} else {
				left = append(left, i)
			}
		}
		if len(left) < len(remaining) {
			out.merits = append(out.merits, q)
		}
		remaining = left
	}
	last := &criteria[len(criteria)-1]
	for _, i := range remaining[1:] {
		out.defeats[i] = defeat{criterion: last, to: remaining[0]}
	}
	out.winner = remaining[0]
	return out
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// speedText formats a speed in Mb/s.
func speedText(mbps int) string {
	switch {
	case mbps <= 0:
		return "unknown speed"
	case mbps%1000 == 0:
		return fmt.Sprintf("%d Gb/s", mbps/1000)
	default:
		return fmt.Sprintf("%d Mb/s", mbps)
	}
}

// meritText describes why a winner was preferred. It returns "" without such a reason.
func meritText(merits []*criterion, r rating) string {
	if len(merits) == 0 {
		return ""
	}
	reasons := make([]string, len(merits))
	for i, m := range merits {
		reasons[i] = m.reasonFor(r)
	}
	return "preferred for " + strings.Join(reasons, ", ")
}
