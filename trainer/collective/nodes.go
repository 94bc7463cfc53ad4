package collective

import (
	"context"
	"slices"
)

// nodes is the [engine] of ranks on several nodes, some of which have more than one.
// The ranks of a node share memory. As many of them as every node has work between
// nodes too, each with its counterparts, those of the same place on other nodes: so what
// goes between nodes is divided among them, and goes once.
type nodes struct {
	*world
	local   *shared
	flat    *messages // all ranks
	across  *messages // the counterparts of this rank; nil if it has none
	byNode  [][]int   // places in the group
	node    int       // this rank's, in byNode
	workers int       // of each node work between nodes, the first ones
	pairs   bool      // all nodes have as many ranks: all work

	// Of a buffer that has a piece for each rank: the place in a node of those who
	// work on each, and the pieces of this rank and its counterparts, by the nodes that
	// they belong to.
	worker []int
	column [][]int

	work, here room // of the operation in progress
}

// Groups of their own for what ranks agree on before the first operation.
const (
	localMark  = 1 << 63
	acrossMark = 1 << 62
)

// divide chooses between messages only, common memory only, and both.
func (w *world) divide(ctx context.Context, flat *messages) (engine, error) {
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
		f, reason, err := shareMemory(ctx, &messages{world: w, id: flat.id ^ localMark, members: members, rank: slices.Index(mine, flat.rank)})
		if err != nil {
			return nil, err
		}
		if why = reason; f != nil {
			e.local = &shared{world: w, members: members, rank: slices.Index(mine, flat.rank), board: f}
		}
	} else {
		e.local = &shared{world: w, members: members, board: newHeap(1, func() {})}
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
	all.leave()
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
	e.pair()
	return e, nil
}

// pair finds out who works with whom.
func (e *nodes) pair() {
	e.pairs, e.workers = true, len(e.byNode[0])
	for _, on := range e.byNode {
		e.pairs = e.pairs && len(on) == len(e.byNode[0])
		e.workers = min(e.workers, len(on))
	}
	e.worker = make([]int, len(e.flat.members))
	for _, on := range e.byNode {
		for i, place := range on {
			e.worker[place] = i % e.workers
		}
	}
	if e.local.rank >= e.workers {
		return
	}
	var counterparts []int
	for _, on := range e.byNode {
		counterparts = append(counterparts, on[e.local.rank])
		var mine []int
		for _, place := range on {
			if e.worker[place] == e.local.rank {
				mine = append(mine, place)
			}
		}
		e.column = append(e.column, mine)
	}
	e.across = e.among(counterparts, e.node)
}

// among is the engine of some ranks, for a part of an operation: of the same group as
// [nodes.flat], so that ranks that are in different operations find out. A rank takes
// part in one of them in an operation.
func (e *nodes) among(places []int, rank int) *messages {
	return &messages{world: e.world, id: e.flat.id, members: e.ranks(places), rank: rank}
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
	asked := c.signature(len(e.flat.members))
	o := &onNodes{nodes: e, ctx: ctx, sequence: sequence, call: c, asked: &asked}
	switch c.Kind {
	case KindBarrier:
		return o.barrier()
	case KindBroadcast:
		return o.broadcast()
	case KindReduce:
		return o.reduce()
	case KindAllReduce:
		return o.allReduce()
	case KindReduceScatter:
		return o.reduceScatter()
	case KindAllGather:
		return o.allGather()
	}
	// Each piece goes from one rank to one other: to move those of a node in its memory
	// was measured, and is no faster.
	return e.flat.run(ctx, sequence, c)
}

func (e *nodes) path(c *Call) Path {
	local, across := e.local.path(c), e.flat.path(c)
	switch c.Kind {
	case KindGather, KindScatter, KindAllToAll:
		return across
	case KindReduce, KindAllReduce, KindReduceScatter:
		a, _ := AcrossAlgorithm(len(c.Send), e.workers, len(e.byNode))
		across.Algorithm = string(a)
	case KindAllGather:
		across.Algorithm = string(GatherAlgorithm(len(c.Recv)/e.workers, len(e.byNode)))
	}
	return Path{Transport: local.Transport + " and " + across.Transport, Algorithm: local.Algorithm + ", then " + across.Algorithm}
}

func (e *nodes) alloc(ctx context.Context, sequence uint64, bytes int) ([]byte, error) {
	return e.local.alloc(ctx, sequence, bytes)
}

func (e *nodes) close() error {
	e.flat.leave()
	return e.local.close()
}
