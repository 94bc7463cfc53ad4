//go:build linux

package cluster

import "fmt"

// SwitchMTU sets the maximum packet size in bytes that the switch of the fast network forwards to a
// node. It drops larger packets silently, like a switch that was left at 1,500 bytes. The node's
// own interface keeps its MTU of 9,000.
func (c *Cluster) SwitchMTU(node string, mtu int) error {
	if _, err := c.index(node); err != nil {
		return err
	}
	port, err := c.net.inside.LinkByName(node + "-fast")
	if err == nil {
		err = c.net.inside.LinkSetMTU(port, mtu)
	}
	if err != nil {
		return fmt.Errorf("the switch's port of node %s: %w", node, err)
	}
	return nil
}
