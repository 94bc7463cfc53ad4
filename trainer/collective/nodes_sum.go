package collective

import "slices"

// Between nodes an element is added up in the order in which the counterparts have the
// parts of one buffer, a part being the pieces of a node's ranks. That buffer is made of
// the same pieces whether all ranks want the sum, one, or each its piece: so the bits are
// the same.

// allReduce adds up within each node, each piece where it is worked on; then across
// nodes; and gathers the node's.
func (o *onNodes) allReduce() error {
	c := o.call
	if len(c.Recv) <= smallRoom {
		return o.sumSmall(c.Recv)
	}
	all := o.pieces(c.Recv)
	if o.pairs && ReduceAlgorithm(o.share(all), len(o.byNode)) == Ring {
		if err := o.addUp(all, all.part); err != nil {
			return err
		}
		if err := o.ring(all, true); err != nil {
			return err
		}
		return o.collect(all)
	}
	mine := o.load(all)
	if err := o.addUp(mine.all, mine.piece); err != nil {
		return err
	}
	if err := o.between(func(x *exchange) error { return x.reduceParts(mine.division, true) }); err != nil {
		return err
	}
	return o.unpack(mine)
}

// sumSmall is allReduce in the fewest steps: every rank adds up all of its node's, and
// where each has counterparts goes on with all of it.
func (o *onNodes) sumSmall(buf []byte) error {
	c := o.part()
	c.Kind, c.Send, c.Recv = KindAllReduce, buf, buf
	if c.Op == Mean {
		c.Op = Sum // between divides it by all ranks
	}
	if err := o.onNode(false, c); err != nil {
		return err
	}
	if o.pairs || o.local.rank == 0 {
		if err := o.between(func(x *exchange) error { return x.doubling(buf) }); err != nil {
			return err
		}
	}
	if o.pairs {
		return nil // every counterpart has added up in the same order
	}
	c.Kind, c.Root = KindBroadcast, 0
	return o.onNode(true, c)
}

// reduceScatter is allReduce without the gathering.
func (o *onNodes) reduceScatter() error {
	c, rank := o.call, o.flat.rank
	if len(c.Send) <= smallRoom {
		all := o.pieces(o.copied(c.Send))
		if err := o.sumSmall(all.buf); err != nil {
			return err
		}
		copy(c.Recv, all.part(rank))
		return nil
	}
	mine := o.load(o.pieces(c.Send))
	if err := o.addUp(mine.all, mine.piece); err != nil {
		return err
	}
	if err := o.between(func(x *exchange) error { return x.reduceParts(mine.division, false) }); err != nil {
		return err
	}
	if o.pairs {
		copy(c.Recv, mine.part(o.node))
		return nil
	}
	here := o.byNode[o.node]
	return o.deliver(mine, func(i int) bool { return slices.Contains(here, i) }, func(i int) []byte {
		if i == rank {
			return c.Recv
		}
		return nil
	})
}

// reduce leaves the buffers of all but root as they are.
func (o *onNodes) reduce() error {
	c := o.call
	isRoot := o.flat.rank == c.Root
	if len(c.Send) <= smallRoom {
		work := o.copied(c.Send)
		if err := o.sumSmall(work); err != nil {
			return err
		}
		if isRoot {
			copy(c.Recv, work)
		}
		return nil
	}
	mine := o.load(o.pieces(c.Send))
	if err := o.addUp(mine.all, mine.piece); err != nil {
		return err
	}
	node, _ := o.find(c.Root)
	if err := o.between(func(x *exchange) error { return x.reduceTo(mine.division, node) }); err != nil {
		return err
	}
	if node != o.node {
		return nil
	}
	return o.deliver(mine, func(int) bool { return true }, func(i int) []byte {
		if isRoot {
			return mine.all.part(i)
		}
		return nil
	})
}
