//go:build linux

package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// KillNode kills slurmd and all other processes on a node, and removes the node's network, like a
// power failure. The kernel closes the connections of the processes, as it does when a single
// process dies. For a node that becomes unreachable, take its links down first. slurmctld detects
// the loss after about 75 seconds, or after about 30 seconds with "SlurmdTimeout=20" and
// "MessageTimeout=5" in Options.SlurmConf.
func (c *Cluster) KillNode(name string) error {
	if _, err := c.index(name); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.machines[name]
	if m == nil {
		return fmt.Errorf("kill node %s: it does not run", name)
	}
	m.off()
	delete(c.machines, name)
	return c.net.disconnect(m)
}

// RestartNode starts a killed node and returns when Slurm has it back in service.
func (c *Cluster) RestartNode(ctx context.Context, name string) error {
	i, err := c.index(name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	since := time.Now().Truncate(time.Second) // Slurm reports whole seconds
	if err := c.bootNode(i); err != nil {
		return fmt.Errorf("restart node %s: %w", name, err)
	}
	err = c.waitNodes(ctx, []string{name}, func(n nodeInfo) bool {
		return !n.started.Before(since) && !strings.HasSuffix(n.state, "*") && !strings.Contains(n.state, "DOWN")
	})
	if err != nil {
		return fmt.Errorf("restart node %s: %w", name, err)
	}
	return nil
}

// NodeState returns a node's state as scontrol shows it: IDLE, MIXED, ALLOCATED, or DOWN, with a
// trailing * if the node does not respond, and flags after + ("IDLE+DRAIN").
func (c *Cluster) NodeState(ctx context.Context, name string) (string, error) {
	nodes, err := c.nodes(ctx)
	if err != nil {
		return "", err
	}
	n, ok := nodes[name]
	if !ok {
		return "", fmt.Errorf("state of node %q: no such node", name)
	}
	return n.state, nil
}

// LinkDown takes an interface of a node down, like "ip link set hsn0 down", which also removes its
// routes.
func (c *Cluster) LinkDown(node, iface string) error {
	return c.withLink(node, iface, func(h *netlink.Handle, l netlink.Link) error { return h.LinkSetDown(l) })
}

// LinkUp takes an interface of a node up again. The route to its own subnet returns with it. A
// default route through the interface stays removed, as on any Linux machine.
func (c *Cluster) LinkUp(node, iface string) error {
	return c.withLink(node, iface, func(h *netlink.Handle, l netlink.Link) error { return h.LinkSetUp(l) })
}

// Counters returns the bytes that a node's interface has received and sent since the start of the
// node, including link headers.
func (c *Cluster) Counters(node, iface string) (rx, tx uint64, err error) {
	err = c.withLink(node, iface, func(_ *netlink.Handle, l netlink.Link) error {
		s := l.Attrs().Statistics
		rx, tx = s.RxBytes, s.TxBytes
		return nil
	})
	return rx, tx, err
}

// Address returns the address of a node's eth0 (management) or hsn0 (fast).
func (c *Cluster) Address(node, iface string) (netip.Addr, error) {
	i, err := c.index(node)
	if err != nil {
		return netip.Addr{}, err
	}
	switch iface {
	case managementIf:
		return c.net.management(i), nil
	case fastIf:
		return c.net.fast(i), nil
	}
	return netip.Addr{}, fmt.Errorf("address of interface %q: only %s and %s have one of their own", iface, managementIf, fastIf)
}

// index returns the number of a node, which is 1 for n1.
func (c *Cluster) index(name string) (int, error) {
	i := slices.Index(c.Nodes(), name)
	if i < 0 {
		return 0, fmt.Errorf("node %q: the nodes are n1 to %s", name, nodeName(c.opts.Nodes))
	}
	return i + 1, nil
}

func (c *Cluster) withLink(node, iface string, f func(*netlink.Handle, netlink.Link) error) error {
	if _, err := c.index(node); err != nil {
		return err
	}
	m := c.running(node)
	if m == nil {
		return fmt.Errorf("interface %s of node %s: the node does not run", iface, node)
	}
	return c.net.within(m, func(h *netlink.Handle, _ netns.NsHandle) error {
		l, err := h.LinkByName(iface)
		if err != nil {
			return fmt.Errorf("interface %q of node %s: %w", iface, node, err)
		}
		if err := f(h, l); err != nil {
			return fmt.Errorf("interface %q of node %s: %w", iface, node, err)
		}
		return nil
	})
}

// nodeInfo holds Slurm's information about a node.
type nodeInfo struct {
	state   string
	started time.Time // start time of slurmd; zero until it has registered
}

// nodes queries slurmctld about all nodes.
func (c *Cluster) nodes(ctx context.Context) (map[string]nodeInfo, error) {
	out, err := output(c.Command(ctx, "scontrol", "--oneliner", "show", "node"))
	if err != nil {
		return nil, err
	}
	nodes := make(map[string]nodeInfo)
	for line := range strings.Lines(out) {
		f := fields(line)
		started, _ := time.ParseInLocation("2006-01-02T15:04:05", f["SlurmdStartTime"], time.Local) // "None" before the registration
		nodes[f["NodeName"]] = nodeInfo{state: f["State"], started: started}
	}
	return nodes, nil
}

// waitNodes waits until ready returns true for every named node.
func (c *Cluster) waitNodes(ctx context.Context, names []string, ready func(nodeInfo) bool) error {
	for {
		nodes, err := c.nodes(ctx)
		waiting := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return ready(nodes[name]) })
		if err == nil && len(waiting) == 0 {
			return nil
		}
		for _, name := range waiting {
			m := c.running(name)
			if m == nil {
				return fmt.Errorf("machine %s was killed", name)
			}
			if err := m.failed(); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for nodes %s (%v): %w", strings.Join(waiting, ","), nodes, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}
