package collective

import "math/bits"

// from is a rank's distance from the root, and to the rank at a distance.
func (x *exchange) fromRoot() int       { return (x.rank - x.call.Root + x.n) % x.n }
func (x *exchange) atRoot(away int) int { return (x.call.Root + away) % x.n }

// treeBroadcast passes a small buffer down a binomial tree.
func (x *exchange) treeBroadcast(buf []byte) error {
	away := x.fromRoot()
	x.steps = uint32(bits.Len(uint(x.n - 1)))
	far := 1
	for ; far < x.n; far *= 2 {
		if away&far != 0 {
			if err := x.wait(x.post(x.atRoot(away-far), uint32(bits.Len(uint(far))-1), buf), nil); err != nil {
				return err
			}
			break
		}
	}
	for far /= 2; far >= 1; far /= 2 {
		if away+far < x.n {
			x.send(x.atRoot(away+far), uint32(bits.Len(uint(far))-1), buf)
		}
	}
	return nil
}

// chainBroadcast passes a large buffer from rank to rank, each forwarding segments as
// they come.
func (x *exchange) chainBroadcast(buf []byte) error {
	away := x.fromRoot()
	last := away == x.n-1
	var in incoming
	if away > 0 {
		in = x.post(x.atRoot(away-1), 0, buf)
		x.announce(x.atRoot(away-1), len(buf))
	}
	if !last {
		if err := x.awaitReady(x.atRoot(away+1), len(buf)); err != nil {
			return err
		}
	}
	if away == 0 {
		x.send(x.atRoot(1), 0, buf)
		return nil
	}
	return x.wait(in, func(i uint32, from, to int) {
		if !last {
			x.sendSegment(x.atRoot(away+1), 0, i, buf[from:to])
		}
	})
}

// reduce leaves the buffers of all but root as they are.
func (x *exchange) reduce() error {
	c := x.call
	work := c.Recv
	if x.rank != c.Root {
		work = make([]byte, len(c.Send))
		copy(work, c.Send)
	}
	if len(work) <= fewStepsBelow {
		return x.treeReduce(work)
	}
	// The parts that the ring leaves with each rank go to root.
	part := func(i int) []byte {
		from, to := bounds(len(work), x.n, i, c.Type.Size())
		return work[from:to]
	}
	gathered := uint32(x.n)
	if x.rank != c.Root {
		if err := x.ring(work, true, false); err != nil {
			return err
		}
		x.send(c.Root, gathered, part(x.rank))
		return nil
	}
	var in []incoming
	// All parts but its own pass root before they are final.
	for i := range x.n {
		if i != x.rank {
			in = append(in, x.post(i, gathered, part(i)))
		}
	}
	if err := x.ring(work, true, false); err != nil {
		return err
	}
	for _, w := range in {
		if err := x.wait(w, nil); err != nil {
			return err
		}
	}
	return nil
}

// treeReduce adds up along a binomial tree, ranks nearer to the root first.
func (x *exchange) treeReduce(work []byte) error {
	c, away := x.call, x.fromRoot()
	x.steps = uint32(bits.Len(uint(x.n - 1)))
	room := x.room(len(work))
	for s := range x.steps {
		far := 1 << s
		if away&far != 0 {
			x.send(x.atRoot(away-far), s, work)
			return nil
		}
		if away+far < x.n {
			if err := x.wait(x.post(x.atRoot(away+far), s, room), nil); err != nil {
				return err
			}
			c.combine(work, work, room)
		}
	}
	c.Op.Finish(c.Type, work, x.n)
	return nil
}
