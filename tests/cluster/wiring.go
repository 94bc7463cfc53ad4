//go:build linux

package cluster

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// cable creates a pair of links: port on a switch, and an interface called name in another
// namespace. The interface's hardware address belongs to address a.
func (n *network) cable(port string, sw netlink.Link, space netns.NsHandle, name string, a netip.Addr) error {
	v := netlink.NewVeth(netlink.NewLinkAttrs())
	v.Name, v.MTU = port, sw.Attrs().MTU
	v.PeerName, v.PeerMTU, v.PeerHardwareAddr = name, uint32(v.MTU), hardware(a)
	v.PeerNamespace = netlink.NsFd(space)
	if err := n.inside.LinkAdd(v); err != nil {
		return fmt.Errorf("make link %s: %w", name, err)
	}
	if err := n.inside.LinkSetMaster(v, sw); err != nil {
		return fmt.Errorf("connect link %s: %w", name, err)
	}
	if err := n.inside.LinkSetUp(v); err != nil {
		return fmt.Errorf("set the switch's end of link %s up: %w", name, err)
	}
	return nil
}

// configure assigns an address to an interface and sets the interface up.
func configure(h *netlink.Handle, name string, a netip.Addr) error {
	l, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find interface %s: %w", name, err)
	}
	if err := h.AddrAdd(l, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(a, prefixBits))}); err != nil {
		return fmt.Errorf("add %v to interface %s: %w", a, name, err)
	}
	if err := h.LinkSetUp(l); err != nil {
		return fmt.Errorf("set interface %s up: %w", name, err)
	}
	return nil
}

// connectControl gives the control machine its management address and no other.
func (n *network) connectControl(m *machine) error {
	return n.within(m, func(h *netlink.Handle, space netns.NsHandle) error {
		if err := n.cable(m.name, n.managementSwitch, space, managementIf, n.control()); err != nil {
			return err
		}
		return n.start(h, n.control())
	})
}

// connectNode gives node i its three interfaces.
func (n *network) connectNode(m *machine, i int) error {
	return n.within(m, func(h *netlink.Handle, space netns.NsHandle) error {
		if err := n.cable(m.name, n.managementSwitch, space, managementIf, n.management(i)); err != nil {
			return err
		}
		if err := n.cable(m.name+"-fast", n.fastSwitch, space, fastIf, n.fast(i)); err != nil {
			return err
		}
		if err := n.start(h, n.management(i)); err != nil {
			return err
		}
		if err := configure(h, fastIf, n.fast(i)); err != nil {
			return err
		}
		return n.docker(h, m)
	})
}

// start sets lo and the management interface up and adds the default route.
func (n *network) start(h *netlink.Handle, a netip.Addr) error {
	lo, err := h.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := h.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	if err := configure(h, managementIf, a); err != nil {
		return err
	}
	if err := h.RouteAdd(&netlink.Route{Gw: n.subnet.login().AsSlice()}); err != nil {
		return fmt.Errorf("add the default route: %w", err)
	}
	return nil
}

// docker creates docker0 with one container link, so that it is up and running. The container's end
// is an unconnected link in the switches' namespace.
func (n *network) docker(h *netlink.Handle, m *machine) error {
	b := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs()}
	b.Name = dockerIf
	if err := h.LinkAdd(b); err != nil {
		return fmt.Errorf("make %s: %w", dockerIf, err)
	}
	if err := h.AddrAdd(b, &netlink.Addr{IPNet: ipNet(dockerAddr)}); err != nil {
		return fmt.Errorf("add %v to %s: %w", dockerAddr, dockerIf, err)
	}
	v := netlink.NewVeth(netlink.NewLinkAttrs())
	v.Name, v.PeerName, v.PeerNamespace = "veth3f2a9c1", m.name+"-container", netlink.NsFd(n.space)
	if err := h.LinkAdd(v); err != nil {
		return fmt.Errorf("make a container's link: %w", err)
	}
	if err := h.LinkSetMaster(v, b); err != nil {
		return fmt.Errorf("connect a container's link: %w", err)
	}
	if err := h.LinkSetUp(v); err != nil {
		return fmt.Errorf("set a container's link up: %w", err)
	}
	far, err := n.inside.LinkByName(v.PeerName)
	if err != nil {
		return fmt.Errorf("find the container's end: %w", err)
	}
	if err := n.inside.LinkSetUp(far); err != nil {
		return fmt.Errorf("set the container's end up: %w", err)
	}
	if err := h.LinkSetUp(b); err != nil {
		return fmt.Errorf("set %s up: %w", dockerIf, err)
	}
	return nil
}

// disconnect removes a machine's links immediately. The kernel would remove them a moment after the
// end of the machine, and the next start would find the names in use.
func (n *network) disconnect(m *machine) error {
	for _, port := range []string{m.name, m.name + "-fast", m.name + "-container"} {
		l, err := n.inside.LinkByName(port)
		if err == nil {
			err = n.inside.LinkDel(l)
		}
		if gone := (netlink.LinkNotFoundError{}); err != nil && !errors.As(err, &gone) && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("remove link %s: %w", port, err)
		}
	}
	return nil
}

// within calls f with a handle to the machine's network namespace.
func (n *network) within(m *machine, f func(*netlink.Handle, netns.NsHandle) error) error {
	space, err := netns.GetFromPid(m.pid())
	if err != nil {
		return fmt.Errorf("enter machine %s: %w", m.name, err)
	}
	defer space.Close()
	h, err := netlink.NewHandleAt(space, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink on machine %s: %w", m.name, err)
	}
	defer h.Close()
	return f(h, space)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), 32)}
}
