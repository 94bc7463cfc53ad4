package collective

import "slices"

// Between nodes, the order of an element's reduction depends on the pieces that the counterparts
// own. All-reduce, reduce, and reduce-scatter divide the buffer into the same pieces, so they give
// the same bits.

// allReduce reduces within each node, each piece on the rank that works on it, then across nodes,
// and then gathers the pieces within the node.
func (o *onNodes) allReduce() error {
	c := o.call
	if len(c.Recv) <= smallBytes {
		return o.sumSmall(c.Recv)
	}
	all := o.pieces(c.Recv)
	if o.uniform && ReduceAlgorithm(o.workBytes(all), len(o.byNode)) == Ring {
		if err := o.reduceOnNode(all, all.part); err != nil {
			return err
		}
		if err := o.ring(all, true); err != nil {
			return err
		}
		return o.gatherOnNode(all)
	}
	share := o.load(all)
	if err := o.reduceOnNode(share.all, share.piece); err != nil {
		return err
	}
	if err := o.runAcross(func(x *exchange) error { return x.reduceParts(share.division, true) }); err != nil {
		return err
	}
	return o.unpack(share)
}

// sumSmall performs an all-reduce in the fewest steps: every rank reduces the whole buffer of its
// node. If each rank has counterparts, all ranks then reduce the whole buffer between nodes.
func (o *onNodes) sumSmall(buf []byte) error {
	c := o.part()
	c.Kind, c.Send, c.Recv = KindAllReduce, buf, buf
	if c.Op == Mean {
		c.Op = Sum // the step between nodes divides by the number of all ranks
	}
	if err := o.runOnNode(false, c); err != nil {
		return err
	}
	if o.uniform || o.local.rank == 0 {
		if err := o.runAcross(func(x *exchange) error { return x.doubling(buf) }); err != nil {
			return err
		}
	}
	if o.uniform {
		return nil // every counterpart has reduced in the same order
	}
	c.Kind, c.Root = KindBroadcast, 0
	return o.runOnNode(true, c)
}

// reduceScatter works like allReduce without the final all-gather.
func (o *onNodes) reduceScatter() error {
	c, rank := o.call, o.flat.rank
	if len(c.Send) <= smallBytes {
		all := o.pieces(o.copied(c.Send))
		if err := o.sumSmall(all.buf); err != nil {
			return err
		}
		copy(c.Recv, all.part(rank))
		return nil
	}
	share := o.load(o.pieces(c.Send))
	if err := o.reduceOnNode(share.all, share.piece); err != nil {
		return err
	}
	if err := o.runAcross(func(x *exchange) error { return x.reduceParts(share.division, false) }); err != nil {
		return err
	}
	if o.uniform {
		copy(c.Recv, share.part(o.node))
		return nil
	}
	here := o.byNode[o.node]
	return o.scatterOnNode(share, func(i int) bool { return slices.Contains(here, i) }, func(i int) []byte {
		if i == rank {
			return c.Recv
		}
		return nil
	})
}

// reduce does not change the buffers of ranks other than root.
func (o *onNodes) reduce() error {
	c := o.call
	isRoot := o.flat.rank == c.Root
	if len(c.Send) <= smallBytes {
		work := o.copied(c.Send)
		if err := o.sumSmall(work); err != nil {
			return err
		}
		if isRoot {
			copy(c.Recv, work)
		}
		return nil
	}
	share := o.load(o.pieces(c.Send))
	if err := o.reduceOnNode(share.all, share.piece); err != nil {
		return err
	}
	node, _ := o.locate(c.Root)
	if err := o.runAcross(func(x *exchange) error { return x.reduceTo(share.division, node) }); err != nil {
		return err
	}
	if node != o.node {
		return nil
	}
	return o.scatterOnNode(share, func(int) bool { return true }, func(i int) []byte {
		if isRoot {
			return share.all.part(i)
		}
		return nil
	})
}
