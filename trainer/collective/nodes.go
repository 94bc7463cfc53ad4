package collective

import (
	"context"
	"slices"
)

// nodes is the [engine] of ranks on several nodes, if a node has more than one rank. The ranks of a
// node share memory. On each node the first ranks, as many as the smallest node has, also
// communicate between nodes, each with its counterparts, the ranks with the same local index on the
// other nodes. They divide the data of the node among them, so that it crosses the network once.
type nodes struct {
	*world
	local   *shared
	flat    *messages // all ranks
	across  *messages // the counterparts of this rank; nil without counterparts
	byNode  [][]int   // group members of each node
	node    int       // index of this rank's node in byNode
	workers int       // number of ranks of each node that communicate between nodes: the first ones
	uniform bool      // all nodes have the same number of ranks, so all ranks communicate between nodes

	// For a buffer with a piece per rank: worker is the local index of the rank that works on each
	// piece, and column holds the pieces of this rank and its counterparts, by the node that they
	// belong to.
	worker []int
	column [][]int

	workBuffer, nodeBuffer buffer // buffers of the operation in progress
}

// These bits mark the groups that are used to set up shared memory.
const (
	localGroup  = 1 << 63
	acrossGroup = 1 << 62
)

// selectEngine selects messages only, shared memory only, or both.
func (w *world) selectEngine(ctx context.Context, flat *messages) (engine, error) {
	e := &nodes{world: w, flat: flat}
	var names []int
	for index, r := range flat.members {
		i := slices.Index(names, w.nodes[r])
		if i < 0 {
			i = len(names)
			names, e.byNode = append(names, w.nodes[r]), append(e.byNode, nil)
		}
		e.byNode[i] = append(e.byNode[i], index)
		if index == flat.rank {
			e.node = i
		}
	}
	if !w.memory || len(names) == len(flat.members) {
		return flat, nil
	}
	local := e.byNode[e.node]
	members := e.ranks(local)
	why := ""
	if len(local) > 1 {
		f, reason, err := shareMemory(ctx, &messages{world: w, id: flat.id ^ localGroup, members: members, rank: slices.Index(local, flat.rank)})
		if err != nil {
			return nil, err
		}
		if why = reason; f != nil {
			e.local = &shared{world: w, members: members, rank: slices.Index(local, flat.rank), board: f}
		}
	} else {
		e.local = &shared{world: w, members: members, board: newHeap(1, func() {})}
	}
	if len(names) == 1 && e.local != nil {
		return e.local, nil
	}
	return e.checkSharedMemory(ctx, why)
}

// checkSharedMemory checks whether the ranks of every node share memory.
func (e *nodes) checkSharedMemory(ctx context.Context, why string) (engine, error) {
	all := &agreement{messages: &messages{world: e.world, id: e.flat.id ^ acrossGroup, members: e.flat.members, rank: e.flat.rank}}
	results, err := all.offers(ctx, offer{Why: why})
	all.leave()
	if err != nil {
		if e.local != nil {
			_ = e.local.close() // a consequence of the first failure
		}
		return nil, err
	}
	for _, v := range results {
		if v.Why != "" {
			e.flat.why = v.Why
			if e.local != nil {
				err = e.local.close()
			}
			return e.flat, err
		}
	}
	e.assignWorkers()
	return e, nil
}

// assignWorkers assigns the workers and their counterparts.
func (e *nodes) assignWorkers() {
	e.uniform, e.workers = true, len(e.byNode[0])
	for _, on := range e.byNode {
		e.uniform = e.uniform && len(on) == len(e.byNode[0])
		e.workers = min(e.workers, len(on))
	}
	e.worker = make([]int, len(e.flat.members))
	for _, on := range e.byNode {
		for i, index := range on {
			e.worker[index] = i % e.workers
		}
	}
	if e.local.rank >= e.workers {
		return
	}
	var counterparts []int
	for _, on := range e.byNode {
		counterparts = append(counterparts, on[e.local.rank])
		var column []int
		for _, index := range on {
			if e.worker[index] == e.local.rank {
				column = append(column, index)
			}
		}
		e.column = append(e.column, column)
	}
	e.across = e.subgroup(counterparts, e.node)
}

// subgroup returns the engine of some ranks, for a part of an operation. It uses the same group ID
// as [nodes.flat], so that ranks in different operations detect the mismatch. A rank takes part in
// only one such engine per operation.
func (e *nodes) subgroup(indices []int, rank int) *messages {
	return &messages{world: e.world, id: e.flat.id, members: e.ranks(indices), rank: rank}
}

// ranks returns the ranks of the attempt for members of the group.
func (e *nodes) ranks(indices []int) []int {
	out := make([]int, len(indices))
	for i, p := range indices {
		out[i] = e.flat.members[p]
	}
	return out
}

func (e *nodes) run(ctx context.Context, sequence uint64, c *Call) error {
	asked := c.Signature(len(e.flat.members))
	o := &onNodes{nodes: e, ctx: ctx, sequence: sequence, call: c, parent: &asked}
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
	// Each piece moves from one rank to one other rank. Moving the pieces of a node through its
	// shared memory was measured and is not faster.
	return e.flat.run(ctx, sequence, c)
}

func (e *nodes) path(c *Call) Path {
	local, across := e.local.path(c), e.flat.path(c)
	switch c.Kind {
	case KindGather, KindScatter, KindAllToAll:
		return across
	case KindBroadcast:
		if len(c.Recv)/e.workers <= fewStepsBelow {
			across.Algorithm = "tree"
		}
	case KindReduce, KindAllReduce, KindReduceScatter:
		a, _ := AcrossAlgorithm(len(c.Send), e.workers, len(e.byNode))
		across.Algorithm = string(a)
	case KindAllGather:
		across.Algorithm = string(GatherAlgorithm(len(c.Recv)/e.workers, len(e.byNode)))
	}
	if len(e.local.members) == 1 {
		return across
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
