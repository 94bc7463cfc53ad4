package collective

import "math/bits"

// fold reduces any number of ranks to a power of two. In each of the first pairs of neighbors, the
// lower rank is out: it sends its data to the upper rank and receives the result from it (Thakur,
// Rabenseifner, and Gropp, 2005). The other ranks have positions, in the order of their ranks.
type fold struct {
	power    int
	extra    int    // number of pairs
	steps    uint32 // log2 of power
	position int    // position of this rank, or of its partner if it is out
	out      bool
	partner  int // the other rank of the pair; -1 without a partner
}

func (x *exchange) fold() fold {
	f := fold{steps: uint32(bits.Len(uint(x.n)) - 1), partner: -1}
	f.power = 1 << f.steps
	f.extra = x.n - f.power
	f.position = x.rank - f.extra
	if x.rank < 2*f.extra {
		f.position, f.out, f.partner = x.rank/2, x.rank%2 == 0, x.rank^1
	}
	return f
}

// rank returns the rank that has a position.
func (f fold) rank(position int) int {
	if position < f.extra {
		return 2*position + 1
	}
	return position + f.extra
}

// divide returns the division in which each position has the parts of its pair.
func (f fold) divide(d division) division {
	return division{d.buf, func(position int) int { return d.cut(min(2*position, position+f.extra)) }}
}

// reduceFromPartner receives and reduces the partner's data, if there is a partner.
func (x *exchange) reduceFromPartner(f fold, buf []byte) error {
	if f.partner < 0 {
		return nil
	}
	in := x.postAndSignal(f.partner, 0, x.receiveBuffer(len(buf)))
	return x.wait(in, func(_ uint32, from, to int) {
		x.call.combine(buf[from:to], in.b[from:to], buf[from:to])
	})
}

// sendToPartner sends the result to the partner, if there is one.
func (x *exchange) sendToPartner(f fold, step uint32, b []byte) error {
	if f.partner < 0 {
		return nil
	}
	return x.sendWhenReady(f.partner, step, b)
}

// halving reduces by recursive halving, in few steps (Rabenseifner, 2004). It leaves each part on
// its rank, or all parts on every rank.
func (x *exchange) halving(d division, onAll bool) error {
	f := x.fold()
	x.steps = f.steps + 2
	if onAll {
		x.steps += f.steps
	}
	last, result := x.steps-1, d.buf // for a rank that is out
	if !onAll {
		result = d.part(x.rank &^ 1)
	}
	if f.out {
		if err := x.sendWhenReady(f.partner, 0, d.buf); err != nil {
			return err
		}
		return x.receive(f.partner, last, result)
	}
	if err := x.reduceFromPartner(f, d.buf); err != nil {
		return err
	}
	if err := x.halve(f, f.divide(d)); err != nil {
		return err
	}
	if onAll {
		if err := x.double(f, f.divide(d), f.steps+1); err != nil {
			return err
		}
	}
	return x.sendToPartner(f, last, result)
}

// gatherDoubling performs an all-gather by recursive doubling.
func (x *exchange) gatherDoubling(d division) error {
	f := x.fold()
	x.steps = f.steps + 2
	if f.out {
		if err := x.sendWhenReady(f.partner, 0, d.part(x.rank)); err != nil {
			return err
		}
		return x.receive(f.partner, f.steps+1, d.buf)
	}
	if f.partner >= 0 {
		if err := x.receive(f.partner, 0, d.part(f.partner)); err != nil {
			return err
		}
	}
	if err := x.double(f, f.divide(d), 1); err != nil {
		return err
	}
	return x.sendToPartner(f, f.steps+1, d.buf)
}

// halve performs a reduce-scatter over positions. In each step, a rank exchanges data with the
// position at half the previous distance, and reduces the half that it retains.
func (x *exchange) halve(f fold, d division) error {
	c, buf, at := x.call, d.buf, d.cut
	low, high := 0, f.power // the parts that this rank works on
	step := uint32(1)
	for far := f.power / 2; far >= 1; far /= 2 {
		other, middle := f.position^far, low+far
		keepLow, keepHigh, sendLow, sendHigh := low, middle, middle, high
		if f.position&far != 0 {
			keepLow, keepHigh, sendLow, sendHigh = middle, high, low, middle
		}
		retained, sent := buf[at(keepLow):at(keepHigh)], buf[at(sendLow):at(sendHigh)]
		in := x.postAndSignal(f.rank(other), step, x.receiveBuffer(len(retained)))
		if err := x.sendWhenReady(f.rank(other), step, sent); err != nil {
			return err
		}
		err := x.wait(in, func(_ uint32, from, to int) {
			low, high := retained[from:to], in.b[from:to]
			if f.position > other {
				low, high = high, low
			}
			c.combine(retained[from:to], low, high)
		})
		if err != nil {
			return err
		}
		low, high = keepLow, keepHigh
		step++
	}
	c.Op.Finish(c.Type, d.part(f.position), x.ranks)
	return nil
}

// double performs an all-gather over positions. In each step, a rank exchanges all of its data with
// the position at twice the previous distance. step is the number of its first step.
func (x *exchange) double(f fold, d division, step uint32) error {
	for far := 1; far < f.power; far *= 2 {
		other := f.position ^ far
		sendAt, receiveAt := f.position&^(far-1), other&^(far-1)
		in := x.postAndSignal(f.rank(other), step, d.buf[d.cut(receiveAt):d.cut(receiveAt+far)])
		if err := x.sendWhenReady(f.rank(other), step, d.buf[d.cut(sendAt):d.cut(sendAt+far)]); err != nil {
			return err
		}
		if err := x.wait(in, nil); err != nil {
			return err
		}
		step++
	}
	return nil
}
