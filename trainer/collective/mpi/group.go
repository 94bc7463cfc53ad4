package mpi

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/turns"
	"github.com/ddpbatch/ddpbatch/trainer/collective/mpi/libmpi"
)

// group is a [collective.Communicator] of some ranks.
type group struct {
	*process
	comm       libmpi.Handle
	id         uint64
	members    []int // ranks of the world
	index      int   // index of this rank among the members
	turns      turns.Turns
	voteBuffer []byte // buffer to compare calls

	connecting bool   // guarded by the process's mutex
	closed     bool   // guarded by the process's mutex
	splits     uint64 // guarded by its turn

	drawing sync.Mutex
	threads map[messageStream]*turns.Turns
}

// messageStream identifies the messages of one tag between two ranks, in one direction.
type messageStream struct {
	peer, tag int
	kind      collective.Kind
}

func newGroup(p *process, comm libmpi.Handle, id uint64, members []int, index int) *group {
	return &group{process: p, comm: comm, id: id, members: members, index: index, threads: map[messageStream]*turns.Turns{}}
}

// exchangeHosts exchanges host names between all ranks and starts to receive notes.
func (g *group) exchangeHosts(ctx context.Context, host string) error {
	g.mu.Lock()
	g.connecting = true
	err := g.startNotes()
	g.mu.Unlock()
	if err != nil {
		return err
	}
	const hostBytes = 128
	g.hosts = make([]string, g.size)
	padded, all := make([]byte, hostBytes), make([]byte, g.size*hostBytes)
	copy(padded, host)
	c := collective.AllGather(all, padded)
	// This operation does not count: the first operation is the user's.
	if err := g.operate(ctx, 0, &c); err != nil {
		return err
	}
	for r := range g.hosts {
		g.hosts[r] = strings.TrimRight(string(all[r*hostBytes:][:hostBytes]), "\x00")
	}
	g.mu.Lock()
	g.connecting = false
	g.mu.Unlock()
	return nil
}

// Rank returns the index of this process.
func (g *group) Rank() int { return g.index }

// Size returns the number of ranks.
func (g *group) Size() int { return len(g.members) }

// Path returns a path whose algorithm is the MPI library's choice.
func (g *group) Path(collective.Call) collective.Path {
	return collective.Path{Transport: "mpi", Algorithm: "as " + string(g.lib.Flavor) + " chooses"}
}

// Do performs a call.
func (g *group) Do(ctx context.Context, c collective.Call) error {
	line, number := g.reserve(&c)
	return g.perform(ctx, &c, line, number)
}

// Start begins a call in the background.
func (g *group) Start(ctx context.Context, c collective.Call) *collective.Request {
	line, number := g.reserve(&c)
	return collective.Begin(func() error { return g.perform(ctx, &c, line, number) })
}

// reserve reserves the position of a call in the order of all calls, or of all messages of its tag.
func (g *group) reserve(c *collective.Call) (*turns.Turns, uint64) {
	line := &g.turns
	if c.Kind.IsDirect() {
		g.drawing.Lock()
		t := messageStream{c.Root, c.Tag, c.Kind}
		if g.threads[t] == nil {
			g.threads[t] = new(turns.Turns)
		}
		line = g.threads[t]
		g.drawing.Unlock()
	}
	return line, line.Draw()
}

// perform runs a call whose position is reserved.
func (g *group) perform(ctx context.Context, c *collective.Call, line *turns.Turns, number uint64) error {
	if c.Kind.IsDirect() {
		return g.inTurn(ctx, line, c.Kind.String(), uint64(c.Tag), number, func(ctx context.Context) error { return g.message(ctx, c) })
	}
	return g.inTurn(ctx, line, c.Kind.String(), number, number, func(ctx context.Context) error { return g.operate(ctx, number, c) })
}

// inTurn runs body after all earlier operations in line have finished. name and sequence are for
// errors.
func (g *group) inTurn(ctx context.Context, line *turns.Turns, name string, sequence, number uint64, body func(context.Context) error) error {
	line.Await(number)
	defer line.Done()
	if err := g.failure(); err != nil {
		return err
	}
	timeout := collective.TimeoutOf(ctx, g.timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, noAnswer(timeout))
	defer cancel()
	err := body(ctx)
	if err == nil {
		return nil
	}
	return g.finalizeError(name, sequence, err)
}

// failure returns the reason why no operation can run anymore, or nil.
func (g *group) failure() error {
	if err := g.failed(); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.checkClosed()
}

// checkClosed returns an error if this rank has closed the group, maybe during an operation. The
// caller holds the mutex.
func (g *group) checkClosed() error {
	if g.closed || g.ended {
		return &collective.Error{Op: "close", Peer: g.peer(g.rank), Err: net.ErrClosed}
	}
	return nil
}

// Split returns a communicator of the ranks that pass the same color.
func (g *group) Split(ctx context.Context, color, key int) (collective.Communicator, error) {
	number := g.turns.Draw()
	var out *group
	err := g.inTurn(ctx, &g.turns, "split", number, number, func(ctx context.Context) (err error) {
		out, err = g.split(ctx, number, color, key)
		return err
	})
	if out == nil {
		return nil, err
	}
	return out, err
}

// split implements Split in its turn. It returns nil if color is negative.
func (g *group) split(ctx context.Context, number uint64, color, key int) (*group, error) {
	color = max(color, -1)
	all := make([]int64, 2*len(g.members))
	c := collective.AllGather(all, []int64{int64(color), int64(key)})
	if err := g.operate(ctx, number, &c); err != nil {
		return nil, err
	}
	g.splits++
	order := collective.Order(all, color)
	// MPI's colors are small and not negative. A group is represented by its first rank. Ranks with
	// a negative color form a group that is freed.
	first := slices.Min(order)
	index := slices.Index(order, g.index)
	g.mu.Lock()
	defer g.mu.Unlock()
	comm, err := g.lib.CommSplit(g.comm, first, index)
	if err != nil {
		return nil, err
	}
	if color < 0 {
		return nil, g.lib.CommFree(comm)
	}
	if err := g.lib.CommSetErrorsReturn(comm); err != nil {
		return nil, err
	}
	members := make([]int, len(order))
	for i, r := range order {
		members[i] = g.members[r]
	}
	return newGroup(g.process, comm, collective.Derive(g.id, g.splits, color), members, index), nil
}

// AllocBytes returns memory that MPI uses in place: see [collective.Alloc].
func (g *group) AllocBytes(_ context.Context, bytes int) ([]byte, error) {
	if bytes == 0 {
		return []byte{}, nil
	}
	b, err := g.memory.mapped(bytes)
	if err != nil {
		return nil, err
	}
	return b[:bytes:bytes], nil
}

// Close notifies the other members that this rank performs no further operations. It does not wait
// for them.
func (g *group) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.ended || g.broken != nil {
		return nil
	}
	g.closed = true
	if g.id == 0 {
		g.ended = true
	}
	return g.sendNote(g.members, note{Kind: noteClosed, Comm: g.id, Sequence: g.turns.Drawn()})
}

// Finalize finalizes MPI in this process after all ranks have closed their World. After a failure
// of this rank it does nothing. It returns an error if the process continues without MPI_Finalize:
// another rank has failed or has not closed in time, or MPI_Finalize does not return. Then the
// process should exit soon.
func (w *World) Finalize() error {
	return errors.Join(w.Close(), w.finalize())
}

// peer returns a rank of the world, with its host if that is known.
func (p *process) peer(rank int) collective.Peer {
	peer := collective.Peer{Rank: rank}
	if rank < len(p.hosts) {
		peer.Addr = p.hosts[rank]
	}
	return peer
}
