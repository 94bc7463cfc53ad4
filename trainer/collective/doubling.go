package collective

import "math/bits"

// disseminate is a barrier in which, in step s, rank r tells rank r+2^s all that it
// knows (Hensgen, Finkel and Manber, 1988).
func (x *exchange) disseminate() error {
	x.steps = uint32(bits.Len(uint(x.n - 1)))
	for s := range x.steps {
		far := 1 << s
		if err := x.swap((x.rank+far)%x.n, (x.rank+x.n-far)%x.n, s, nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// doubling is all-reduce in the fewest steps: ranks exchange all they have with the one
// at distance 1, 2, 4 and so on (Thakur, Rabenseifner and Gropp, 2005). Where their
// number is no power of two, the first ones give what they have to their neighbours,
// and get the result from them.
func (x *exchange) doubling(buf []byte) error {
	c, n := x.call, x.n
	power := 1 << (bits.Len(uint(n)) - 1)
	extra := n - power
	levels := uint32(bits.Len(uint(power)) - 1)
	x.steps = levels + 2
	room := x.room(len(buf))
	place := x.rank - extra
	if x.rank < 2*extra {
		place = x.rank / 2
		if x.rank%2 == 0 {
			x.send(x.rank+1, 0, buf)
			return x.wait(x.post(x.rank+1, levels+1, buf), nil)
		}
		if err := x.wait(x.post(x.rank-1, 0, room), nil); err != nil {
			return err
		}
		c.combine(buf, room, buf)
	}
	// What is sent must stay as it is until it has gone, and the sum goes to buf.
	out := make([]byte, len(buf)*int(levels))
	for s := range levels {
		other := place ^ 1<<s
		peer := other + extra
		if other < extra {
			peer = 2*other + 1
		}
		mine := out[int(s)*len(buf):][:len(buf)]
		copy(mine, buf)
		if err := x.swap(peer, peer, s+1, mine, room); err != nil {
			return err
		}
		if place < other {
			c.combine(buf, buf, room)
		} else {
			c.combine(buf, room, buf)
		}
	}
	c.Op.Finish(c.Type, buf, x.ranks)
	if x.rank < 2*extra {
		x.send(x.rank-1, levels+1, buf)
	}
	return nil
}

// levels is the number of steps in which n ranks, a power of two, halve or double.
func (x *exchange) levels() uint32 { return uint32(bits.Len(uint(x.n)) - 1) }

// halve is reduce-scatter over a power of two of ranks: with the rank at half the
// distance each time, they exchange and add up the half that the other keeps. With
// [exchange.double] after it it is an all-reduce (Rabenseifner, 2004).
func (x *exchange) halve(d division) error {
	c, n, buf, at := x.call, x.n, d.buf, d.cut
	room := x.room(len(buf))
	low, high := 0, n // the parts that this rank works on
	step := uint32(0)
	for far := n / 2; far >= 1; far /= 2 {
		peer, middle := x.rank^far, low+far
		keepLow, keepHigh, giveLow, giveHigh := low, middle, middle, high
		if x.rank&far != 0 {
			keepLow, keepHigh, giveLow, giveHigh = middle, high, low, middle
		}
		keep, in := buf[at(keepLow):at(keepHigh)], room[at(keepLow):at(keepHigh)]
		if err := x.swap(peer, peer, step, buf[at(giveLow):at(giveHigh)], in); err != nil {
			return err
		}
		if x.rank < peer {
			c.combine(keep, keep, in)
		} else {
			c.combine(keep, in, keep)
		}
		low, high = keepLow, keepHigh
		step++
	}
	c.Op.Finish(c.Type, d.part(x.rank), x.ranks)
	return nil
}

// double is all-gather over a power of two of ranks: with the rank at twice the
// distance each time, they exchange all that they have. Its steps begin with the given
// number.
func (x *exchange) double(d division, step uint32) error {
	for far := 1; far < x.n; far *= 2 {
		peer := x.rank ^ far
		mine, theirs := x.rank&^(far-1), peer&^(far-1)
		out, in := d.buf[d.cut(mine):d.cut(mine+far)], d.buf[d.cut(theirs):d.cut(theirs+far)]
		if err := x.swap(peer, peer, step, out, in); err != nil {
			return err
		}
		step++
	}
	return nil
}
