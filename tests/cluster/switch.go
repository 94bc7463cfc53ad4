//go:build linux

package cluster

import "fmt"

// SwitchMTU sets the largest packet, in bytes, that the fast network's switch passes on to a
// node. Larger ones are dropped without a word, as by a switch that was left at 1500 bytes: the
// node's own interface keeps its MTU of 9000.
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
