package collective

import "github.com/ddpbatch/ddpbatch/trainer/collective/element"

// division is a buffer that consists of one part per rank.
type division struct {
	buf []byte
	cut func(i int) int // offset of part i; cut(n) is the length
}

func (d division) part(i int) []byte { return d.buf[d.cut(i):d.cut(i+1)] }

// evenly divides buf into n parts of whole elements.
func evenly(buf []byte, n, size int) division {
	return division{buf, func(i int) int { return len(buf) / size * i / n * size }}
}

// reduceParts reduces the buffer and leaves each part on its rank (reduce-scatter), or all parts on
// every rank (all-reduce).
func (x *exchange) reduceParts(d division, onAll bool) error {
	switch ReduceAlgorithm(len(d.buf), x.n) {
	case Doubling:
		return x.doubling(d.buf)
	case Halving:
		return x.halving(d, onAll)
	}
	return x.ring(d.part, true, onAll)
}

// gatherParts copies every part to all ranks.
func (x *exchange) gatherParts(d division) error {
	if GatherAlgorithm(len(d.buf), x.n) == Doubling {
		return x.gatherDoubling(d)
	}
	return x.ring(d.part, false, true)
}

// reduceTo leaves the reduction on root. The buffers of other ranks are undefined afterwards.
func (x *exchange) reduceTo(d division, root int) error {
	if ReduceAlgorithm(len(d.buf), x.n) == Doubling {
		return x.doubling(d.buf)
	}
	last := uint32(2 * x.n) // after the steps of any algorithm
	var in []incoming
	if x.rank == root {
		// A part is final only after root has sent its own data of it, so no result arrives too early.
		for i := range x.n {
			if i != root {
				in = append(in, x.post(i, last, d.part(i)))
			}
		}
	}
	if err := x.reduceParts(d, false); err != nil {
		return err
	}
	x.steps = 0 // the messages below are not steps of the algorithm
	if x.rank != root {
		x.send(root, last, d.part(x.rank))
	}
	for _, w := range in {
		if err := x.wait(w, nil); err != nil {
			return err
		}
	}
	return nil
}

// buffer is a reusable buffer, aligned for every element type.
type buffer struct{ b []byte }

func (r *buffer) get(n int) []byte {
	if cap(r.b) < n {
		r.b = element.Bytes(make([]float64, (n+7)/8))
	}
	return r.b[:n]
}
