package interfaces

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/ddpbatch/ddpbatch/netif"
)

// An Outcome is the result of a selection.
type Outcome string

// The results, best first.
const (
	Right Outcome = "right" // only the interface that a user would select
	Works Outcome = "works" // reaches the other host over a different or a slower network
	Risk  Outcome = "risk"  // ranks connect, but data may use an interface that leads nowhere
	Fails Outcome = "fails" // ranks do not connect, or data certainly uses such an interface
)

// An Evaluation is the result of one selection, with its cause.
type Evaluation struct {
	Outcome Outcome
	Link    string // the interface that decided the result
	Why     string // empty if right
}

// Evaluate compares a selection with the right one, using the routes of both hosts.
func (p Pair) Evaluate(pick Pick, right Use) Evaluation {
	if pick.Failed != "" {
		return Evaluation{Fails, "none", pick.Failed}
	}
	if p.isSingleHost() {
		if len(pick.Uses) == 0 || isLoopback(linkNamed(p.Here, pick.Uses[0].Link)) {
			return Evaluation{Outcome: Right, Link: right.Link}
		}
		return Evaluation{Works, pick.Uses[0].Link, "every rank is on this host"}
	}
	first := pick.Uses[0]
	if fault, _ := p.fault(first); fault != "" {
		return Evaluation{Fails, first.Link, first.Link + ": " + fault}
	}
	if pick.Spread != Meet {
		for _, u := range pick.Uses[1:] {
			fault, sure := p.fault(u)
			switch {
			case fault != "" && sure && pick.Spread == All:
				return Evaluation{Fails, u.Link, "also uses " + u.Link + ": " + fault}
			case fault != "":
				return Evaluation{Risk, u.Link, "also uses " + u.Link + ": " + fault}
			}
		}
	}
	if pick.Guess != "" {
		return Evaluation{Risk, pick.Guess, pick.Guess + " shares no subnet with the other host; the matching interface there is a guess"}
	}
	switch {
	case pick.Spread == All && len(pick.Uses) > 1:
		return Evaluation{Works, "all", "uses all of them: " + names(pick.Uses)}
	case first.Link != right.Link:
		return Evaluation{Works, first.Link, p.explainOther(first, right)}
	}
	return Evaluation{Outcome: Right, Link: right.Link}
}

// fault returns why a use cannot reach the other host, or "" if it can. The reason also applies in
// the other direction, because the hosts are equal. A fault is not sure if a router that the
// inventories do not show could help.
func (p Pair) fault(u Use) (why string, sure bool) {
	a := u.Addr.Addr()
	to, known := p.counterpart(u)
	switch {
	case a.IsLoopback():
		return fmt.Sprintf("%s is the loopback address", a), true
	case a.Is6() && a.IsLinkLocalUnicast():
		return "only a link-local IPv6 address, which has no route", true
	case known && to == a:
		return fmt.Sprintf("%s is on every host", a), true
	case !isLoopback(linkNamed(p.Here, u.Link)) && !canCarryTraffic(linkNamed(p.Here, u.Link)):
		return "no carrier", true
	case !known:
		return "the other host has nothing in " + u.Addr.Masked().String(), false
	}
	dev, src := route(p.Here, to)
	switch {
	case dev == "":
		return fmt.Sprintf("no route to %s", to), true
	case dev != u.Link && src != a && !u.Addr.Contains(to):
		return fmt.Sprintf("the route to %s leaves by %s", to, dev), false
	}
	return "", false
}

// explainOther returns how a use that works differs from the right one.
func (p Pair) explainOther(u, right Use) string {
	own, best := speed(linkNamed(p.Here, u.Link)), speed(linkNamed(p.Here, right.Link))
	switch {
	case own > 0 && best > own:
		return fmt.Sprintf("%s at %s, %s has %s", u.Link, gigabits(own), right.Link, gigabits(best))
	case own > 0 && best > 0 && own > best:
		return fmt.Sprintf("%s, a faster network than the intended one", u.Link)
	}
	return fmt.Sprintf("%s, a different network from %s", u.Link, right.Link)
}

// speed returns the speed in Mb/s, or 0 if it is unknown or invented by a virtual driver.
func speed(l netif.Link) int {
	if l.PCI == "" && l.Kind != "bond" || l.Speed < 0 {
		return 0
	}
	return l.Speed
}

func gigabits(mbits int) string {
	if mbits%1000 != 0 {
		return fmt.Sprintf("%d Mb/s", mbits)
	}
	return fmt.Sprintf("%d Gb/s", mbits/1000)
}

func names(uses []Use) string {
	var list []string
	for _, u := range uses {
		list = append(list, u.Link)
	}
	return strings.Join(list, ", ")
}

// RightUse returns the use that a case expects, with the interface's subnet for the address.
func RightUse(inv netif.Inventory, link string, addr netip.Addr) Use {
	for _, a := range linkNamed(inv, link).Addrs {
		if a.Addr() == addr {
			return Use{link, a}
		}
	}
	return Use{link, netip.PrefixFrom(addr, addr.BitLen())}
}
