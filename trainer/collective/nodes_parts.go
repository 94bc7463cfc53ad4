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
	asked    *mesh.Signature
}

// part is a call that is a part of this one.
func (o *onNodes) part() *Call {
	c := *o.call
	c.asked = o.asked
	return &c
}

// onNode performs a part in common memory. What follows a step between nodes takes
// longer: who waits for a rank that works with another node must let that one find out.
func (o *onNodes) onNode(follows bool, c *Call) error {
	o.local.slack = 0
	if follows {
		o.local.slack = timeoutOf(o.ctx, o.timeout) / 4
	}
	return o.local.run(o.ctx, o.sequence, c)
}

// between performs a part with the counterparts of this rank, if it has any.
func (o *onNodes) between(do func(*exchange) error) error {
	if o.across == nil {
		return nil
	}
	return o.across.exchange(o.ctx, o.sequence, o.part(), func(x *exchange) error {
		x.ranks = len(o.worker)
		return do(x)
	})
}

// pieces are those of a buffer that has one for each rank.
func (o *onNodes) pieces(buf []byte) pieces {
	size := o.call.Type.Size()
	return pieces{evenly(buf, len(o.worker), size), o.worker, size}
}

// ring passes the pieces that this rank works on round, from where they are. It is for
// nodes of one size, where a part has one piece.
func (o *onNodes) ring(all pieces, reduce bool) error {
	return o.between(func(x *exchange) error {
		return x.ring(func(i int) []byte { return all.part(o.column[i][0]) }, reduce, true)
	})
}

// share is the bytes of the pieces that this rank works on.
func (o *onNodes) share(all pieces) int {
	bytes := 0
	for _, on := range o.column {
		for _, i := range on {
			bytes += all.cut(i+1) - all.cut(i)
		}
	}
	return bytes
}

// load is the pieces that this rank works on, one after another, as a buffer with a
// part for each node.
type load struct {
	division
	all pieces
	at  []int // where each piece is
}

// load makes room for them, until the end of the operation.
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
	l.division = division{o.work.of(at), func(i int) int { return cuts[i] }}
	return l
}

// piece is the room of piece i of all.
func (l load) piece(i int) []byte { return l.buf[l.at[i]:][:l.all.cut(i+1)-l.all.cut(i)] }

// addUp has each rank reduce the pieces that it works on over its node, into what room
// gives.
func (o *onNodes) addUp(all pieces, room func(i int) []byte) error {
	c := o.part()
	c.Send = all.buf
	c.look = &look{bytes: len(all.buf),
		bring: func(window []byte, from int) {
			all.each(from, from+len(window), func(i, a, b int) {
				if all.worker[i] != o.local.rank {
					copy(window[a-from:b-from], all.buf[a:b])
				}
			})
		},
		take: func(from, to int, shown func(int) []byte) {
			all.each(from, to, func(i, a, b int) {
				if all.worker[i] == o.local.rank {
					start := all.cut(i)
					o.local.reduceParts(c, room(i)[a-start:b-start], func(r int) []byte { return shown(r)[a-from : b-from] })
				}
			})
		}}
	return o.onNode(false, c)
}

// collect gives the node's ranks all pieces of a buffer, from who has worked on them.
func (o *onNodes) collect(all pieces) error {
	c := o.part()
	c.Send = all.buf
	c.look = &look{bytes: len(all.buf),
		bring: func(window []byte, from int) {
			all.each(from, from+len(window), func(i, a, b int) {
				if all.worker[i] == o.local.rank {
					copy(window[a-from:], all.buf[a:b])
				}
			})
		},
		take: func(from, to int, shown func(int) []byte) {
			all.each(from, to, func(i, a, b int) {
				if all.worker[i] != o.local.rank {
					copy(all.buf[a:b], shown(all.worker[i])[a-from:])
				}
			})
		}}
	return o.onNode(true, c)
}

// deliver gives those of this node's pieces that are wanted to ranks that have a place
// for them.
func (o *onNodes) deliver(mine load, wanted func(i int) bool, place func(i int) []byte) error {
	c, all := o.part(), mine.all
	c.Send = nil
	have := func(i, a, b int) []byte { return mine.piece(i)[a-all.cut(i) : b-all.cut(i)] }
	c.look = &look{bytes: len(all.buf), hidden: true,
		bring: func(window []byte, from int) {
			all.each(from, from+len(window), func(i, a, b int) {
				if all.worker[i] == o.local.rank && wanted(i) {
					copy(window[a-from:], have(i, a, b))
				}
			})
		},
		take: func(from, to int, shown func(int) []byte) {
			all.each(from, to, func(i, a, b int) {
				into := place(i)
				switch {
				case into == nil:
				case all.worker[i] == o.local.rank:
					copy(into[a-all.cut(i):], have(i, a, b))
				default:
					copy(into[a-all.cut(i):b-all.cut(i)], shown(all.worker[i])[a-from:])
				}
			})
		}}
	return o.onNode(true, c)
}

// unpack gives the node's ranks all pieces from where they were worked on.
func (o *onNodes) unpack(mine load) error {
	for _, on := range o.column {
		for _, i := range on {
			copy(mine.all.part(i), mine.piece(i))
		}
	}
	return o.collect(mine.all)
}

// copied is a copy that is this operation's until its end.
func (o *onNodes) copied(b []byte) []byte {
	work := o.work.of(len(b))
	copy(work, b)
	return work
}

// find is the node of a rank, and its place there.
func (o *onNodes) find(rank int) (node, place int) {
	for i, on := range o.byNode {
		if place := slices.Index(on, rank); place >= 0 {
			return i, place
		}
	}
	panic("collective: internal error: a rank is on no node")
}
