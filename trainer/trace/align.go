package trace

import (
	"math"
	"time"
)

// clocks are the clocks of nodes by that of one of them.
type clocks struct {
	reference int           // the node whose clock it is
	ahead     map[int]int64 // how much a node's clock is ahead of it, in ns
	within    int64         // the error of each is at most this, in ns
	unknown   []int         // nodes whose clocks could not be compared, which are taken to be right
}

// align compares clocks by the meetings of ranks. No rank knows that all have come before
// each of them has: with came and knew by each rank's own clock, and d what b's clock is
// ahead of a's,
//
//	came(b) - knew(a) <= d <= knew(b) - came(a)
//
// in every meeting. The best of them leave as much room as two ranks take to hear of each
// other. Ranks of a node have one clock, so that the bounds of each pair of ranks count
// for their nodes; what a clock drifts in the moment of the meetings does not.
func align(all []*Recording) clocks {
	c := clocks{ahead: map[int]int64{}}
	if len(all) == 0 {
		return c
	}
	c.reference = all[0].Node
	nodes := map[int][]*Recording{}
	var order []int
	for _, r := range all {
		if nodes[r.Node] == nil {
			order = append(order, r.Node)
		}
		nodes[r.Node] = append(nodes[r.Node], r)
	}
	for _, node := range order[1:] {
		low, high := int64(math.MinInt64), int64(math.MaxInt64)
		for _, a := range nodes[c.reference] {
			for _, b := range nodes[node] {
				for i := range min(len(a.Met), len(b.Met)) {
					low = max(low, b.Origin+b.Met[i][0]-a.Origin-a.Met[i][1])
					high = min(high, b.Origin+b.Met[i][1]-a.Origin-a.Met[i][0])
				}
			}
		}
		if low > high || low == math.MinInt64 { // a clock was set meanwhile, or ranks never met
			c.unknown = append(c.unknown, node)
			continue
		}
		c.ahead[node] = low + (high-low)/2
		c.within = max(c.within, (high-low+1)/2)
	}
	return c
}

// origin is when a recording began, by the reference.
func (c clocks) origin(r *Recording) int64 { return r.Origin - c.ahead[r.Node] }

func (c clocks) accuracy() time.Duration { return time.Duration(c.within) }
