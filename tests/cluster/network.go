//go:build linux

package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const (
	managementIf  = "eth0"
	fastIf        = "hsn0"
	dockerIf      = "docker0"
	managementMTU = 1500
	fastMTU       = 9000
)

// dockerAddr is the default address of docker0, which is the same on every machine.
var dockerAddr = netip.MustParsePrefix("172.17.0.1/16")

// network is the cluster's switches: two bridges in a network namespace without a process and
// without a name. Only this process holds the namespace open, so the namespace ends with this
// process. All links of the cluster end with it, because each has one end in it.
type network struct {
	subnet
	space            netns.NsHandle
	inside           *netlink.Handle // handle to the switches' namespace
	managementSwitch netlink.Link
	fastSwitch       netlink.Link
	outside          *netlink.Handle // handle to this machine's namespace
	login            string          // the link that connects this machine as the login node
}

// newNetwork creates the switches and connects this machine to the management network.
func newNetwork() (n *network, err error) {
	n = &network{space: netns.None()}
	defer func() {
		if err != nil {
			n.close()
			n = nil
		}
	}()
	var here netns.NsHandle
	if here, n.space, err = newSpace(); err != nil {
		return n, fmt.Errorf("make a network namespace: %w", err)
	}
	defer here.Close()
	if n.outside, err = netlink.NewHandleAt(here, unix.NETLINK_ROUTE); err != nil {
		return n, fmt.Errorf("open netlink: %w", err)
	}
	if n.inside, err = netlink.NewHandleAt(n.space, unix.NETLINK_ROUTE); err != nil {
		return n, fmt.Errorf("open netlink in the switches' namespace: %w", err)
	}
	if n.managementSwitch, err = n.bridge("management", managementMTU); err != nil {
		return n, err
	}
	if n.fastSwitch, err = n.bridge("fast", fastMTU); err != nil {
		return n, err
	}
	return n, n.connectLogin(here)
}

// newSpace creates a network namespace that exists as long as the returned handle. here is the
// namespace of the caller.
func newSpace() (here, made netns.NsHandle, err error) {
	runtime.LockOSThread()
	if here, err = netns.Get(); err != nil {
		runtime.UnlockOSThread()
		return here, made, err
	}
	made, err = netns.New() // also enters the namespace
	if back := netns.Set(here); back != nil {
		// The thread stays locked, so that no other goroutine runs in the wrong namespace.
		return here, made, errors.Join(err, back)
	}
	runtime.UnlockOSThread()
	return here, made, err
}

// bridge creates a switch.
func (n *network) bridge(name string, mtu int) (netlink.Link, error) {
	b := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs()}
	b.Name, b.MTU = name, mtu
	if err := n.inside.LinkAdd(b); err != nil {
		return nil, fmt.Errorf("make bridge %s: %w", name, err)
	}
	if err := n.inside.LinkSetUp(b); err != nil {
		return nil, fmt.Errorf("set bridge %s up: %w", name, err)
	}
	return b, nil
}

// connectLogin takes the first free subnet. The name of the link on this machine is the claim: only
// one cluster can have it, and the kernel removes it when that cluster ends.
func (n *network) connectLogin(here netns.NsHandle) error {
	free, err := freeSubnets(n.outside)
	if err != nil {
		return fmt.Errorf("look for a free subnet: %w", err)
	}
	for _, s := range free {
		name := fmt.Sprintf("ddptest%d", s.id)
		err := n.cable("login", n.managementSwitch, here, name, s.login())
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err != nil {
			return fmt.Errorf("connect the login node: %w", err)
		}
		n.subnet, n.login = s, name
		if err := configure(n.outside, name, s.login()); err != nil {
			return fmt.Errorf("connect the login node: %w", err)
		}
		return nil
	}
	return errors.New("find a free subnet: all of 10.10.0.0/24 to 10.10.255.0/24 are in use on this machine")
}

// close removes the login link and closes the handles of the switches. It can be called twice.
func (n *network) close() error {
	var err error
	if n.login != "" {
		var l netlink.Link
		if l, err = n.outside.LinkByName(n.login); err == nil {
			err = n.outside.LinkDel(l)
		}
		n.login = ""
	}
	for _, h := range []**netlink.Handle{&n.inside, &n.outside} {
		if *h != nil {
			(*h).Close()
			*h = nil
		}
	}
	if n.space.IsOpen() {
		err = errors.Join(err, n.space.Close())
	}
	return err
}
