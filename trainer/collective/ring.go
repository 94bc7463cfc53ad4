package collective

// maxUnpacedBytes is the size in bytes of the largest buffer that ranks reduce in a ring without flow
// control. In such a ring, a slow rank stores up to n-3 parts that it has not requested yet. All
// operations in progress share the space for such messages, 1 GiB. Tests change it.
var maxUnpacedBytes = 256 << 20

// ring reduces and gathers the parts of a buffer by the reduce-scatter and all-gather of the
// bandwidth-optimal all-reduce (Patarasuk and Yuan, 2009): each rank sends 2(n-1)/n of the buffer
// for any number of ranks. Part i may be anywhere in memory. Its reduction ends, and its gathering
// begins, at rank i. Segments are forwarded as soon as they arrive: one is reduced while others are
// in transit.
func (x *exchange) ring(parts func(i int) []byte, reduce, gather bool) error {
	n := x.n
	next, previous := (x.rank+1)%n, (x.rank+n-1)%n
	part := func(i int) []byte { return parts((i%n + n) % n) }
	largest := 0
	for i := range n {
		largest = max(largest, len(part(i)))
	}
	steps := uint32(n - 1)
	x.steps = steps
	if reduce && gather {
		x.steps *= 2
	}
	first := uint32(0) // first step of the all-gather
	if reduce {
		first = steps
	}
	// Gathered data is final: the part has passed this rank before, so it can be overwritten in
	// place on arrival.
	var final []incoming
	if gather {
		for s := range n - 1 {
			final = append(final, x.post(previous, first+uint32(s), part(x.rank-1-s)))
		}
	}
	if reduce {
		if err := x.ringReduce(part, largest, gather); err != nil {
			return err
		}
	} else {
		x.announce(previous, largest)
		if err := x.awaitReady(next, largest); err != nil {
			return err
		}
		x.send(next, first, part(x.rank))
	}
	for s, in := range final {
		err := x.wait(in, func(i uint32, from, to int) {
			if s+1 < n-1 {
				x.sendSegment(next, in.step+1, i, in.b[from:to])
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// ringReduce passes partial sums around the ring. In step s, rank r sends part r-1-s and adds its
// own data to part r-2-s. So the sum of part i begins with rank i+1 and ends with rank i, which
// forwards it if it is to be gathered. With flow control, a rank waits until the next rank has
// requested a step before it sends that step.
func (x *exchange) ringReduce(part func(int) []byte, largest int, gather bool) error {
	n, c := x.n, x.call
	next, previous := (x.rank+1)%n, (x.rank+n-1)%n
	received := x.receiveBuffer(2 * largest)
	paced := n*largest > maxUnpacedBytes
	post := func(s int) incoming {
		into := part(x.rank - 2 - s)
		in := x.post(previous, uint32(s), received[s%2*largest:][:len(into)])
		if s > 0 && paced {
			x.sendSegment(previous, readyStep|in.step, 0, nil)
		}
		return in
	}
	in := post(0)
	x.announce(previous, largest)
	if err := x.awaitReady(next, largest); err != nil {
		return err
	}
	x.send(next, 0, part(x.rank-1))
	for s := range n - 1 {
		now, into, last := in, part(x.rank-2-s), s == n-2
		if !last {
			in = post(s + 1)
			if paced {
				if err := x.wait(x.post(next, readyStep|in.step, nil), nil); err != nil {
					return err
				}
			}
		}
		err := x.wait(now, func(i uint32, from, to int) {
			c.combine(into[from:to], now.b[from:to], into[from:to])
			if last {
				c.Op.Finish(c.Type, into[from:to], x.ranks)
			}
			if !last || gather {
				x.sendSegment(next, now.step+1, i, into[from:to])
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}
