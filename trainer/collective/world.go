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

// Options describe this rank's place among processes.
type Options struct {
	Rank int
	// Addrs is where each rank listens, as "host:port".
	Addrs []string
	// Nodes says of each rank on which node it is; nil is that each is on its own.
	Nodes []int
	// Memory lets ranks of a node share memory.
	Memory bool
	Secret wire.Secret
	Source net.IP // address to connect from; nil leaves it to the kernel
	// Sockets is the number of connections between two ranks, all of one source
	// address; 0 is 2.
	Sockets int
	// Authenticate protects messages between processes with keyed tags, so that nobody on
	// the path between nodes can alter them unnoticed. Without it, CRCs find damage only.
	// All ranks must have the same value.
	Authenticate bool
	// ConnectTimeout bounds Connect and each first use of a rank, Timeout every single
	// operation.
	ConnectTimeout, Timeout time.Duration
}

// world is the ranks of an attempt, seen from one of them.
type world struct {
	rank, size int
	mesh       mesh.Mesh
	nodes      []int
	memory     bool
	timeout    time.Duration
	messages   string // the transport of messages
	heaps      *heaps // where all ranks are goroutines
	groups     *groups
	waiting    *waiting // of the group whose world this is
	lookout    *lookout // of that group

	ended chan struct{} // closed with that group
}

// Local returns the communicators of n ranks that are goroutines of this process.
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
		g := w.place(0, members)
		g.engine = &shared{world: g.world, members: members, rank: r, board: boards.of(0, n)}
		out[r] = g
	}
	return out
}

// connectMark is the group that ranks first meet in.
const connectMark = 1 << 61

// Connect returns the communicator of this process and all others of the attempt, which
// must call it too. It accepts connections on listener, which it closes in the end.
func Connect(ctx context.Context, listener net.Listener, o Options) (Communicator, error) {
	n := len(o.Addrs)
	if n < 1 || o.Rank < 0 || o.Rank >= n || o.Nodes != nil && len(o.Nodes) != n {
		listener.Close()
		return nil, fmt.Errorf("rank %d of %d ranks on %d nodes", o.Rank, n, len(o.Nodes))
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
	hello := w.place(connectMark, members)
	hello.engine = &messages{world: hello.world, id: connectMark, members: members, rank: o.Rank}
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

// place is a group of some ranks without its engine, in a world of its own.
func (w *world) place(id uint64, members []int) *group {
	own := *w
	own.waiting, own.lookout, own.ended = new(waiting), newLookout(), make(chan struct{})
	g := &group{world: &own, id: id, members: members, rank: slices.Index(members, w.rank)}
	w.groups.add(g)
	return g
}

// group makes a communicator of some ranks, all of which call it.
func (w *world) group(ctx context.Context, id uint64, members []int) (*group, error) {
	g := w.place(id, members)
	e, err := g.world.engine(ctx, id, members, g.rank)
	if err != nil {
		return nil, g.settle(kindSplit, 0, err)
	}
	g.engine = e
	return g, nil
}

// engine chooses how the ranks of a group work together.
func (w *world) engine(ctx context.Context, id uint64, members []int, rank int) (engine, error) {
	if w.heaps != nil {
		return &shared{world: w, members: members, rank: rank, board: w.heaps.of(id, len(members))}, nil
	}
	m := &messages{world: w, id: id, members: members, rank: rank}
	if len(members) == 1 {
		return m, nil
	}
	return w.divide(ctx, m)
}
