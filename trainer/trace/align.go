package trace

import (
	"math"
	"time"
)

// clocks holds the offsets of the nodes' clocks from a reference node's clock.
type clocks struct {
	reference int           // the reference node
	offset    map[int]int64 // offset of each node's clock from the reference, in ns
	maxError  int64         // maximum error of each offset, in ns
	unknown   []int         // nodes with unknown clock offset; assumed to be 0
}

// align computes clock offsets from barriers that all ranks have passed. No rank leaves a barrier
// before each rank has entered it. With enter and leave on each rank's own clock, and d the offset
// of b's clock from a's clock,
//
//	enter(b) - leave(a) <= d <= leave(b) - enter(a)
//
// holds for every barrier. The tightest bounds differ by the time in which two ranks exchange
// messages. Ranks of a node share a clock, so the bounds of each pair of ranks apply to their
// nodes: the tightest ones have the last enter and the first leave of each node. Clock drift during
// the barriers is ignored.
func align(all []*Recording) clocks {
	c := clocks{offset: map[int]int64{}}
	if len(all) == 0 {
		return c
	}
	c.reference = all[0].Node
	nodes := map[int]bounds{}
	var order []int
	for _, r := range all {
		b, ok := nodes[r.Node]
		if !ok {
			order = append(order, r.Node)
		}
		nodes[r.Node] = b.with(r)
	}
	reference := nodes[c.reference]
	for _, node := range order[1:] {
		low, high := int64(math.MinInt64), int64(math.MaxInt64)
		for i, b := range nodes[node] {
			if i < len(reference) {
				a := reference[i]
				low, high = max(low, b.entered-a.left), min(high, b.left-a.entered)
			}
		}
		if low > high || low == math.MinInt64 { // a clock was set meanwhile, or there was no barrier
			c.unknown = append(c.unknown, node)
			continue
		}
		c.offset[node] = low + (high-low)/2
		c.maxError = max(c.maxError, (high-low+1)/2)
	}
	return c
}

// bounds holds, for each barrier, when the last rank of a node entered it and when the first one left it.
type bounds []struct{ entered, left int64 }

// with returns the bounds with the barriers of a recording.
func (b bounds) with(r *Recording) bounds {
	for i, at := range r.Barriers {
		entered, left := r.Origin+at[0], r.Origin+at[1]
		if i == len(b) {
			b = append(b, struct{ entered, left int64 }{entered, left})
		}
		b[i].entered, b[i].left = max(b[i].entered, entered), min(b[i].left, left)
	}
	return b
}

// origin returns the start of a recording on the reference clock.
func (c clocks) origin(r *Recording) int64 { return r.Origin - c.offset[r.Node] }

func (c clocks) accuracy() time.Duration { return time.Duration(c.maxError) }
