package collective

import (
	"context"
	"slices"
)

// nodes is the [engine] of ranks on several nodes, some of which have more than one: a
// node's ranks share memory, and each has one counterpart on every other node, with
// which it works on a part, or the first ones of the nodes work for all.
type nodes struct {
	*world
	local   *shared
	flat    *messages // all ranks
	across  *messages // the counterparts of this rank; of a leader where nodes differ in size
	byNode  [][]int   // places in the group
	node    int       // this rank's, in byNode
	columns bool      // all nodes have as many ranks
}

// Groups of their own, so that their messages are never those of the operation itself.
const (
	localMark  = 1 << 63
	acrossMark = 1 << 62
)

// onNodes chooses between messages only, common memory only, and both.
func (w *world) onNodes(ctx context.Context, flat *messages) (engine, error) {
	e := &nodes{world: w, flat: flat}
	var names []int
	for place, r := range flat.members {
		i := slices.Index(names, w.nodes[r])
		if i < 0 {
			i = len(names)
			names, e.byNode = append(names, w.nodes[r]), append(e.byNode, nil)
		}
		e.byNode[i] = append(e.byNode[i], place)
		if place == flat.rank {
			e.node = i
		}
	}
	if !w.memory || len(names) == len(flat.members) {
		return flat, nil
	}
	mine := e.byNode[e.node]
	members := e.ranks(mine)
	why := ""
	if len(mine) > 1 {
		f, reason, err := share(ctx, &messages{world: w, id: flat.id ^ localMark, members: members, rank: slices.Index(mine, flat.rank)})
		if err != nil {
			return nil, err
		}
		if why = reason; f != nil {
			e.local = &shared{world: w, members: members, rank: slices.Index(mine, flat.rank), board: f}
		}
	} else {
		e.local = &shared{world: w, members: members, board: newHeap(1)}
	}
	if len(names) == 1 && e.local != nil {
		return e.local, nil
	}
	return e.agree(ctx, why)
}

// agree finds out whether the ranks of all nodes share memory.
func (e *nodes) agree(ctx context.Context, why string) (engine, error) {
	all := &agreement{messages: &messages{world: e.world, id: e.flat.id ^ acrossMark, members: e.flat.members, rank: e.flat.rank}}
	verdicts, err := all.offers(ctx, offer{Why: why})
	if err != nil {
		return nil, err
	}
	for _, v := range verdicts {
		if v.Why != "" {
			e.flat.why = v.Why
			if e.local != nil {
				err = e.local.close()
			}
			return e.flat, err
		}
	}
	e.columns = true
	place := slices.Index(e.byNode[e.node], e.flat.rank)
	for _, on := range e.byNode {
		e.columns = e.columns && len(on) == len(e.byNode[e.node])
	}
	if !e.columns && place > 0 {
		return e, nil
	}
	var column []int
	for _, on := range e.byNode {
		column = append(column, on[place])
	}
	e.across = e.between(column, e.node)
	return e, nil
}

// between is the engine of some ranks of different nodes.
func (e *nodes) between(places []int, rank int) *messages {
	return &messages{world: e.world, id: e.flat.id ^ acrossMark ^ localMark, members: e.ranks(places), rank: rank}
}

// ranks is the ranks of the attempt at places of the group.
func (e *nodes) ranks(places []int) []int {
	out := make([]int, len(places))
	for i, p := range places {
		out[i] = e.flat.members[p]
	}
	return out
}

func (e *nodes) run(ctx context.Context, sequence uint64, c *Call) error {
	switch c.Kind {
	case KindAllReduce:
		return e.allReduce(ctx, sequence, c)
	case KindBroadcast:
		return e.broadcast(ctx, sequence, c)
	case KindBarrier:
		return e.barrier(ctx, sequence, c)
	}
	return e.flat.run(ctx, sequence, c)
}

// onNode performs a part of an operation. What follows a step between nodes takes
// longer: who waits for a rank that works with another node must let that one find out.
func (e *nodes) onNode(ctx context.Context, sequence uint64, follows bool, c *Call) error {
	e.local.slack = 0
	if follows {
		e.local.slack = e.timeout / 4
	}
	return e.local.run(ctx, sequence, c)
}

// allReduce adds up within each node, then across nodes, and tells the node.
func (e *nodes) allReduce(ctx context.Context, sequence uint64, c *Call) error {
	sum := *c
	if c.Op == Mean {
		sum.Op = Sum
	}
	if err := e.onNode(ctx, sequence, false, &sum); err != nil {
		return err
	}
	part := sum
	shares := e.columns && len(c.Recv) > smallRoom
	if shares {
		from, to := lines(len(c.Recv), len(e.local.members), e.local.rank)
		part.Send, part.Recv = c.Send[from:to], c.Recv[from:to]
	}
	if e.across != nil {
		if err := e.across.run(ctx, sequence, &part); err != nil {
			return err
		}
		c.Op.Finish(c.Type, part.Recv, len(e.flat.members))
	}
	switch {
	case shares:
		sum.Kind = kindParts
		return e.onNode(ctx, sequence, true, &sum)
	case !e.columns:
		tell := Call{Kind: KindBroadcast, Type: c.Type, Send: c.Recv, Recv: c.Recv}
		return e.onNode(ctx, sequence, true, &tell)
	}
	// Every counterpart has added up all of it, in the same order.
	return nil
}

// broadcast goes from root to one rank of each other node, and from there on.
func (e *nodes) broadcast(ctx context.Context, sequence uint64, c *Call) error {
	var heads []int
	here, at := *c, 0
	here.Root, here.said = 0, c.Root+1
	for i, on := range e.byNode {
		head := on[0]
		if place := slices.Index(on, c.Root); place >= 0 {
			head, at = c.Root, i
			if i == e.node {
				here.Root = place
			}
		}
		heads = append(heads, head)
	}
	if heads[e.node] == e.flat.rank {
		there := here
		there.Root = at
		if err := e.between(heads, e.node).run(ctx, sequence, &there); err != nil {
			return err
		}
	}
	return e.onNode(ctx, sequence, true, &here)
}

// barrier gathers the node, then the nodes, then lets the node go.
func (e *nodes) barrier(ctx context.Context, sequence uint64, c *Call) error {
	if err := e.onNode(ctx, sequence, false, c); err != nil {
		return err
	}
	if e.local.rank == 0 {
		var leaders []int
		for _, on := range e.byNode {
			leaders = append(leaders, on[0])
		}
		if err := e.between(leaders, e.node).run(ctx, sequence, c); err != nil {
			return err
		}
	}
	return e.onNode(ctx, sequence, true, c)
}

func (e *nodes) path(c *Call) Path {
	switch c.Kind {
	case KindAllReduce, KindBroadcast, KindBarrier:
		local := e.local.path(c)
		across := e.flat.path(c)
		return Path{Transport: local.Transport + " and " + across.Transport, Algorithm: local.Algorithm + ", then " + across.Algorithm}
	}
	return e.flat.path(c)
}

func (e *nodes) alloc(ctx context.Context, sequence uint64, bytes int) ([]byte, error) {
	return e.local.alloc(ctx, sequence, bytes)
}

func (e *nodes) close() error { return e.local.close() }
