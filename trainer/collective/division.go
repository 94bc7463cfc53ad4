package collective

import "github.com/ddpbatch/ddpbatch/trainer/collective/element"

// The ways to work on a buffer of which each rank has one part.
const (
	byRing     = "ring"
	byDoubling = "recursive doubling"
	byHalving  = "halving-doubling"
)

// summing is how messages of so many bytes are reduced over n ranks. Every reduction
// asks this with the bytes of the whole buffer, of which the result is all, a part or
// one rank's: so an element's order does not depend on the operation.
func summing(bytes, n int) string {
	switch {
	case bytes < fewStepsBelow:
		return byDoubling
	case bytes < halvingBelow && n&(n-1) == 0:
		return byHalving
	}
	return byRing
}

// gathering is how the parts of so many bytes come to all of n ranks.
func gathering(bytes, n int) string {
	if bytes < halvingBelow && n&(n-1) == 0 {
		return byDoubling
	}
	return byRing
}

// division is a buffer of which each rank has one part.
type division struct {
	buf []byte
	cut func(i int) int // where part i begins; cut(n) is the end
}

func (d division) part(i int) []byte { return d.buf[d.cut(i):d.cut(i+1)] }

// evenly divides buf into n parts of whole elements.
func evenly(buf []byte, n, size int) division {
	return division{buf, func(i int) int { return len(buf) / size * i / n * size }}
}

// reduceParts leaves the reduction of a part on the rank that it belongs to, or on all.
func (x *exchange) reduceParts(d division, onAll bool) error {
	switch summing(len(d.buf), x.n) {
	case byDoubling:
		return x.doubling(d.buf)
	case byHalving:
		x.steps = x.levels()
		if onAll {
			x.steps *= 2
		}
		if err := x.halve(d); err != nil || !onAll {
			return err
		}
		return x.double(d, x.levels())
	}
	return x.ring(d.part, true, onAll)
}

// gatherParts gives every part to all ranks.
func (x *exchange) gatherParts(d division) error {
	if gathering(len(d.buf), x.n) == byDoubling {
		x.steps = x.levels()
		return x.double(d, 0)
	}
	return x.ring(d.part, false, true)
}

// reduceTo leaves the reduction on one rank, the buffers of others without meaning.
func (x *exchange) reduceTo(d division, root int) error {
	if summing(len(d.buf), x.n) == byDoubling {
		return x.doubling(d.buf)
	}
	last := uint32(2 * x.n) // after the steps of any algorithm
	var in []incoming
	if x.rank == root {
		// Every part but its own passes root before it is final.
		for i := range x.n {
			if i != root {
				in = append(in, x.post(i, last, d.part(i)))
			}
		}
	}
	if err := x.reduceParts(d, false); err != nil {
		return err
	}
	x.steps = 0 // what follows is none
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

// room is memory that is used again, aligned for every element.
type room struct{ b []byte }

func (r *room) of(n int) []byte {
	if cap(r.b) < n {
		r.b = element.Bytes(make([]float64, (n+7)/8))
	}
	return r.b[:n]
}
