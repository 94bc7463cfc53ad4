package collective

import (
	"context"
	"slices"

	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/mesh"
)

// onNodes is one operation of ranks on several nodes.
type onNodes struct {
	*nodes
	ctx      context.Context
	sequence uint64
	call     *Call
	parent   *mesh.Signature
}

// part returns a call for a part of this operation.
func (o *onNodes) part() *Call {
	c := *o.call
	c.parent = o.parent
	return &c
}

// runOnNode performs a part in shared memory. A part that follows a step between nodes gets a
// longer timeout: a rank that communicates with another node must detect a failure before the ranks
// of its node that wait for it.
func (o *onNodes) runOnNode(follows bool, c *Call) error {
	o.local.slack = 0
	if follows {
		o.local.slack = TimeoutOf(o.ctx, o.timeout) / 4
	}
	return o.local.run(o.ctx, o.sequence, c)
}

// runAcross performs a part with the counterparts of this rank on the other nodes, if it has any.
func (o *onNodes) runAcross(do func(*exchange) error) error {
	if o.across == nil {
		return nil
	}
	return o.across.exchange(o.ctx, o.sequence, o.part(), func(x *exchange) error {
		x.ranks = len(o.worker)
		return do(x)
	})
}

// pieces divides a buffer into one piece per rank.
func (o *onNodes) pieces(buf []byte) pieces {
	size := o.call.Type.Size()
	return pieces{evenly(buf, len(o.worker), size), o.worker, size}
}

// ring runs the ring algorithm on the pieces of this rank and its counterparts, in place. It
// requires nodes of equal size, so that each part is one piece.
func (o *onNodes) ring(all pieces, reduce bool) error {
	return o.runAcross(func(x *exchange) error {
		return x.ring(func(i int) []byte { return all.part(o.column[i][0]) }, reduce, true)
	})
}

// workBytes returns the number of bytes of the pieces that this rank works on.
func (o *onNodes) workBytes(all pieces) int {
	bytes := 0
	for _, on := range o.column {
		for _, i := range on {
			bytes += all.cut(i+1) - all.cut(i)
		}
	}
	return bytes
}

// load holds the pieces that this rank works on, one after another, as a buffer with a part per
// node.
type load struct {
	division
	all pieces
	at  []int // offset of each piece
}

// load allocates a load, which is valid until the end of the operation.
func (o *onNodes) load(all pieces) load {
	l := load{all: all, at: make([]int, len(o.worker))}
	cuts, at := []int{0}, 0
	for _, on := range o.column {
		for _, i := range on {
			l.at[i] = at
			at += all.cut(i+1) - all.cut(i)
		}
		cuts = append(cuts, at)
	}
	l.division = division{o.workBuffer.get(at), func(i int) int { return cuts[i] }}
	return l
}

// piece returns the space for piece i of all.
func (l load) piece(i int) []byte { return l.buf[l.at[i]:][:l.all.cut(i+1)-l.all.cut(i)] }

// reduceOnNode makes each rank reduce the pieces that it works on over its node, into the space
// that dst returns.
func (o *onNodes) reduceOnNode(all pieces, dst func(i int) []byte) error {
	c := o.part()
	c.Send = all.buf
	c.step = &sharedStep{bytes: len(all.buf),
		fill: func(window []byte, from int) {
			all.each(from, from+len(window), func(i, a, b int) {
				if all.worker[i] != o.local.rank {
					copy(window[a-from:b-from], all.buf[a:b])
				}
			})
		},
		read: func(from, to int, shown func(int) []byte) {
			all.each(from, to, func(i, a, b int) {
				if all.worker[i] == o.local.rank {
					start := all.cut(i)
					o.local.reduceParts(c, dst(i)[a-start:b-start], func(r int) []byte { return shown(r)[a-from : b-from] })
				}
			})
		}}
	return o.runOnNode(false, c)
}

// gatherOnNode copies each piece of a buffer from the rank that worked on it to all ranks of the
// node.
func (o *onNodes) gatherOnNode(all pieces) error {
	c := o.part()
	c.Send = all.buf
	c.step = &sharedStep{bytes: len(all.buf),
		fill: func(window []byte, from int) {
			all.each(from, from+len(window), func(i, a, b int) {
				if all.worker[i] == o.local.rank {
					copy(window[a-from:], all.buf[a:b])
				}
			})
		},
		read: func(from, to int, shown func(int) []byte) {
			all.each(from, to, func(i, a, b int) {
				if all.worker[i] != o.local.rank {
					copy(all.buf[a:b], shown(all.worker[i])[a-from:])
				}
			})
		}}
	return o.runOnNode(true, c)
}

// scatterOnNode copies the wanted pieces of this node to the ranks whose dst function returns a
// destination.
func (o *onNodes) scatterOnNode(share load, wanted func(i int) bool, dst func(i int) []byte) error {
	c, all := o.part(), share.all
	c.Send = nil
	have := func(i, a, b int) []byte { return share.piece(i)[a-all.cut(i) : b-all.cut(i)] }
	c.step = &sharedStep{bytes: len(all.buf), staged: true,
		fill: func(window []byte, from int) {
			all.each(from, from+len(window), func(i, a, b int) {
				if all.worker[i] == o.local.rank && wanted(i) {
					copy(window[a-from:], have(i, a, b))
				}
			})
		},
		read: func(from, to int, shown func(int) []byte) {
			all.each(from, to, func(i, a, b int) {
				into := dst(i)
				switch {
				case into == nil:
				case all.worker[i] == o.local.rank:
					copy(into[a-all.cut(i):], have(i, a, b))
				default:
					copy(into[a-all.cut(i):b-all.cut(i)], shown(all.worker[i])[a-from:])
				}
			})
		}}
	return o.runOnNode(true, c)
}

// unpack copies all pieces from the ranks that worked on them to all ranks of the node.
func (o *onNodes) unpack(share load) error {
	for _, on := range o.column {
		for _, i := range on {
			copy(share.all.part(i), share.piece(i))
		}
	}
	return o.gatherOnNode(share.all)
}

// copied returns a copy that is valid until the end of the operation.
func (o *onNodes) copied(b []byte) []byte {
	work := o.workBuffer.get(len(b))
	copy(work, b)
	return work
}

// locate returns the node of a rank and its local index.
func (o *onNodes) locate(rank int) (node, index int) {
	for i, on := range o.byNode {
		if index := slices.Index(on, rank); index >= 0 {
			return i, index
		}
	}
	panic("collective: internal error: a rank is on no node")
}
