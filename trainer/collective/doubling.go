package collective

import "math/bits"

// disseminate performs a dissemination barrier: in step s, rank r signals rank r+2^s (Hensgen,
// Finkel, and Manber, 1988).
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

// doubling performs an all-reduce by recursive doubling, in the fewest steps: each rank exchanges
// the whole buffer with the ranks at distance 1, 2, 4, and so on (Thakur, Rabenseifner, and Gropp,
// 2005).
func (x *exchange) doubling(buf []byte) error {
	c, f := x.call, x.fold()
	x.steps = f.steps + 2
	if f.out {
		if err := x.sendWhenReady(f.partner, 0, buf); err != nil {
			return err
		}
		return x.receive(f.partner, f.steps+1, buf)
	}
	if err := x.reduceFromPartner(f, buf); err != nil {
		return err
	}
	received := x.receiveBuffer(len(buf))
	// The data must not change until it is sent, and the sum is written to buf.
	out := make([]byte, len(buf)*int(f.steps))
	for s := range f.steps {
		other := f.position ^ 1<<s
		sent := out[int(s)*len(buf):][:len(buf)]
		copy(sent, buf)
		if err := x.swap(f.rank(other), f.rank(other), s+1, sent, received); err != nil {
			return err
		}
		if f.position < other {
			c.combine(buf, buf, received)
		} else {
			c.combine(buf, received, buf)
		}
	}
	c.Op.Finish(c.Type, buf, x.ranks)
	return x.sendToPartner(f, f.steps+1, buf)
}
