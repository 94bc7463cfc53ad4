package collective

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/mesh"
	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// Options configure this rank of a group of processes.
type Options struct {
	Rank int
	// Addrs is the listen address of each rank, as "host:port".
	Addrs []string
	// Nodes is the node of each rank. If it is nil, each rank has its own node.
	Nodes []int
	// Memory lets the ranks of a node share memory.
	Memory bool
	Secret wire.Secret
	Source net.IP // address to connect from; nil leaves it to the kernel
	// Sockets is the number of connections between two ranks, all from one source address. The
	// default is 2.
	Sockets int
	// Authenticate protects messages between processes with keyed tags, so that nothing on the
	// network path can alter them undetected. Without it, CRCs detect only accidental corruption.
	// All ranks must pass the same value.
	Authenticate bool
	// ConnectTimeout limits each step of Connect and the first connection to each rank. Timeout
	// limits each operation.
	ConnectTimeout, Timeout time.Duration
}

// world holds the ranks of an attempt and this rank's view of them.
type world struct {
	rank, size int
	mesh       mesh.Mesh
	nodes      []int
	memory     bool
	timeout    time.Duration
	messages   string // transport of point-to-point messages
	heaps      *heaps // nil unless all ranks are goroutines
	groups     *groups
	waiting    *waitedRank         // of the group that owns this copy of the world
	detector   *divergenceDetector // of that group

	ended chan struct{} // closed when that group closes
}

// Local returns the communicators of n ranks that are goroutines of this process. timeout limits each
// operation.
func Local(n int, timeout time.Duration) []Communicator {
	of := make([]groups, n)
	meshes, boards := mesh.Local(n, func(rank int, group uint64) mesh.State { return of[rank].state(group) }), new(heaps)
	out := make([]Communicator, n)
	for r := range n {
		w := &world{rank: r, size: n, mesh: meshes[r], timeout: timeout, messages: "memory", heaps: boards, groups: &of[r]}
		members := make([]int, n)
		for i := range members {
			members[i] = i
		}
		g := w.newGroup(0, members)
		g.engine = &shared{world: g.world, members: members, rank: r, board: boards.boardFor(0, n)}
		out[r] = g
	}
	return out
}

// connectGroup is the ID of the group that verifies the connections of all ranks.
const connectGroup = 1 << 61

// Connect returns the communicator of all processes of the attempt, each of which must call it. It
// accepts connections on listener. It closes the listener when all ranks are connected, when the
// communicator closes, or on an error.
func Connect(ctx context.Context, listener net.Listener, o Options) (Communicator, error) {
	n := len(o.Addrs)
	if n < 1 || o.Rank < 0 || o.Rank >= n || o.Nodes != nil && len(o.Nodes) != n {
		listener.Close()
		return nil, fmt.Errorf("invalid options: rank %d of %d ranks on %d nodes", o.Rank, n, len(o.Nodes))
	}
	w := &world{rank: o.Rank, size: n, nodes: o.Nodes, memory: o.Memory, timeout: o.ConnectTimeout, messages: "tcp",
		groups: new(groups)}
	members := make([]int, n)
	for i := range members {
		members[i] = i
	}
	if w.nodes == nil {
		w.nodes = members
	}
	w.mesh = mesh.Connect(listener, mesh.Options{Rank: o.Rank, Addrs: o.Addrs, Secret: o.Secret, Source: o.Source,
		Sockets: o.Sockets, Authenticate: o.Authenticate, State: w.groups.state, ConnectTimeout: o.ConnectTimeout})
	hello := w.newGroup(connectGroup, members)
	hello.engine = &messages{world: hello.world, id: connectGroup, members: members, rank: o.Rank}
	err := hello.Do(ctx, Barrier())
	var g *group
	if err == nil {
		g, err = w.group(ctx, 0, members)
	}
	if err != nil {
		w.mesh.Close()
		return nil, fmt.Errorf("connect the ranks: %w", err)
	}
	g.timeout = o.Timeout
	return g, nil
}

// newGroup returns a group of the given members without an engine. The group has its own copy of
// the world.
func (w *world) newGroup(id uint64, members []int) *group {
	own := *w
	own.waiting, own.detector, own.ended = new(waitedRank), newDivergenceDetector(), make(chan struct{})
	g := &group{world: &own, id: id, members: members, rank: slices.Index(members, w.rank)}
	w.groups.add(g)
	return g
}

// group returns a communicator of the given members. All of them must call it.
func (w *world) group(ctx context.Context, id uint64, members []int) (*group, error) {
	g := w.newGroup(id, members)
	e, err := g.world.newEngine(ctx, id, members, g.rank)
	if err != nil {
		return nil, g.finalizeError(kindSplit, 0, err)
	}
	g.engine = e
	return g, nil
}

// newEngine selects how the ranks of a group communicate.
func (w *world) newEngine(ctx context.Context, id uint64, members []int, rank int) (engine, error) {
	if w.heaps != nil {
		return &shared{world: w, members: members, rank: rank, board: w.heaps.boardFor(id, len(members))}, nil
	}
	m := &messages{world: w, id: id, members: members, rank: rank}
	if len(members) == 1 {
		return m, nil
	}
	return w.selectEngine(ctx, m)
}
