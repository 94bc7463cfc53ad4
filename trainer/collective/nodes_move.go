package collective

// barrier synchronizes the node, then the nodes, then releases the ranks of the node.
func (o *onNodes) barrier() error {
	if err := o.runOnNode(false, o.part()); err != nil {
		return err
	}
	if o.local.rank == 0 {
		if err := o.runAcross((*exchange).disseminate); err != nil {
			return err
		}
	}
	return o.runOnNode(true, o.part())
}

// allGather gathers the pieces across nodes, then within the node.
func (o *onNodes) allGather() error {
	c := o.call
	all := o.pieces(c.Recv)
	if o.uniform && GatherAlgorithm(o.workBytes(all), len(o.byNode)) == Ring {
		copy(all.part(o.flat.rank), c.Send)
		if err := o.ring(all, false); err != nil {
			return err
		}
		return o.gatherOnNode(all)
	}
	share := o.load(all)
	if o.uniform {
		copy(share.part(o.node), c.Send)
	} else if err := o.collectWork(share); err != nil {
		return err
	}
	if err := o.runAcross(func(x *exchange) error { return x.gatherParts(share.division) }); err != nil {
		return err
	}
	return o.unpack(share)
}

// collectWork copies the pieces of the node's ranks to the ranks that communicate between nodes.
func (o *onNodes) collectWork(share load) error {
	c, here := o.part(), o.byNode[o.node]
	m := len(c.Send)
	c.Recv = o.nodeBuffer.get(len(here) * m)
	if err := o.runOnNode(false, c); err != nil {
		return err
	}
	for r, i := range here {
		if o.worker[i] == o.local.rank {
			copy(share.piece(i), c.Recv[r*m:])
		}
	}
	return nil
}

// broadcast sends the buffer from root to one rank of each other node, and from there to the other
// ranks of the node. A large buffer is first shared within root's node. Then each rank there sends
// one piece to its counterparts, which share it within their nodes.
func (o *onNodes) broadcast() error {
	c := o.call
	node, index := o.locate(c.Root)
	here := o.part()
	here.Root = 0
	if o.node == node {
		here.Root = index
	}
	if o.workers == 1 || len(c.Recv) <= fewStepsBelow {
		var heads []int
		for i, on := range o.byNode {
			heads = append(heads, on[0])
			if i == node {
				heads[i] = c.Root
			}
		}
		if heads[o.node] == o.flat.rank {
			if err := o.broadcastOver(o.subgroup(heads, o.node), node, c.Recv); err != nil {
				return err
			}
		}
		return o.runOnNode(true, here)
	}
	all := pieces{evenly(c.Recv, o.workers, c.Type.Size()), nil, c.Type.Size()}
	for i := range o.workers {
		all.worker = append(all.worker, i)
	}
	if o.node == node {
		if err := o.runOnNode(false, here); err != nil {
			return err
		}
	}
	if o.across != nil {
		if err := o.broadcastOver(o.across, node, all.part(o.local.rank)); err != nil {
			return err
		}
	}
	if o.node == node {
		return nil
	}
	return o.gatherOnNode(all)
}

// broadcastOver broadcasts from the given node's rank to one rank of each other node.
func (o *onNodes) broadcastOver(ranks *messages, node int, buf []byte) error {
	c := o.part()
	c.Root, c.Send, c.Recv = node, buf, buf
	return ranks.exchange(o.ctx, o.sequence, c, (*exchange).perform)
}
