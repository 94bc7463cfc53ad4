package collective

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/mesh"
	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/turns"
)

// engine implements the collectives of a group.
type engine interface {
	// run performs the operation with the given sequence number. If a rank is the cause of its error,
	// the error is a mesh.PeerError or a mesh.Mismatch, with ranks of the whole attempt.
	run(ctx context.Context, sequence uint64, c *Call) error
	path(c *Call) Path
	// alloc returns memory for which run is fastest, or nil if the memory makes no difference.
	alloc(ctx context.Context, sequence uint64, bytes int) ([]byte, error)
	close() error
}

// group is a [Communicator] of some ranks of a world.
type group struct {
	*world
	id      uint64
	members []int // ranks of the world
	rank    int   // index among the members
	engine  engine
	turns   turns.Turns
	splits  uint64

	running sync.WaitGroup // operations in progress
	closing sync.Once

	mu     sync.Mutex
	broken error // the first failure; running grows only while it is nil
	at     groupState
	counts map[messageStream]uint32
}

// messageStream identifies the messages of one tag between two ranks, in one direction.
type messageStream struct {
	peer, tag int
	kind      Kind
}

// Rank returns the index of this process in the group.
func (g *group) Rank() int { return g.rank }

// Size returns the number of ranks.
func (g *group) Size() int { return len(g.members) }

// Path returns the transport and the algorithm of a call.
func (g *group) Path(c Call) Path {
	if c.Kind.IsDirect() {
		return Path{Transport: g.world.messages, Algorithm: "direct"}
	}
	return g.engine.path(&c)
}

// Do performs a call.
func (g *group) Do(ctx context.Context, c Call) error { return g.perform(ctx, &c, g.reserve(&c)) }

// Start begins a call in the background.
func (g *group) Start(ctx context.Context, c Call) *Request {
	number := g.reserve(&c)
	return Begin(func() error { return g.perform(ctx, &c, number) })
}

// reserve reserves the position of a call in the order of all calls.
func (g *group) reserve(c *Call) uint64 {
	if !c.Kind.IsDirect() {
		return g.turns.Draw()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	t := messageStream{c.Root, c.Tag, c.Kind}
	if g.counts == nil {
		g.counts = map[messageStream]uint32{}
	}
	g.counts[t]++
	return uint64(g.counts[t] - 1)
}

// perform runs a call whose position is reserved.
func (g *group) perform(ctx context.Context, c *Call, number uint64) error {
	if c.Kind.IsDirect() {
		if err := g.begin(nil); err != nil {
			return err
		}
		defer g.running.Done()
		err := c.Check(g.rank, len(g.members))
		if err == nil {
			err = g.direct(ctx, c, uint32(number))
		}
		return g.finalizeError(c.Kind, uint64(c.Tag), err)
	}
	return g.inTurn(ctx, groupState{number, c.Signature(len(g.members))}, func() error {
		if err := c.Check(g.rank, len(g.members)); err != nil {
			return err
		}
		return g.engine.run(ctx, number, c)
	})
}

// inTurn runs body after all earlier operations of the group have finished.
func (g *group) inTurn(ctx context.Context, at groupState, body func() error) error {
	g.turns.Await(at.sequence)
	defer g.turns.Done()
	if err := g.begin(&at); err != nil {
		return err
	}
	defer g.end(at.sequence)
	err := body()
	if err != nil {
		err = g.findRootCause(ctx, at, err)
	}
	return g.finalizeError(Kind(at.signature.Kind), at.sequence, err)
}

// begin registers an operation, or returns the error that broke the group. at is nil for
// point-to-point messages.
func (g *group) begin(at *groupState) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.broken != nil {
		return g.broken
	}
	if at != nil {
		g.at = *at
		g.startDetector()
	}
	g.running.Add(1)
	return nil
}

// end marks an operation as finished.
func (g *group) end(sequence uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.at = groupState{sequence: sequence + 1}
	g.stopDetector()
	g.running.Done()
}

func (g *group) state() groupState {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.at
}

// finalizeError makes an error final: it breaks the group and notifies all other ranks.
func (g *group) finalizeError(kind Kind, number uint64, err error) error {
	if err == nil {
		return nil
	}
	e := &Error{Op: kind.String(), Sequence: number, Peer: Peer{Rank: g.world.rank}, Err: err}
	var of *mesh.PeerError
	var other *mesh.Mismatch
	var because *Error // cause of the context's cancellation
	switch {
	case errors.As(err, &because):
		e.Peer.Rank, e.Err = because.Peer.Rank, because
	case errors.As(err, &of):
		e.Peer.Rank, e.Err = of.Peer, of.Err
	case errors.As(err, &other):
		e.Peer.Rank, e.Err = other.Peer, diverged(other)
	}
	e.Peer.Addr = g.mesh.Addr(e.Peer.Rank)
	g.mu.Lock()
	if g.broken == nil {
		g.broken = e
	}
	final := g.broken
	g.mu.Unlock()
	g.mesh.Abort(&mesh.PeerError{Peer: e.Peer.Rank, Err: fmt.Errorf("%s %d: %w", e.Op, e.Sequence, e.Err)})
	return final
}

// diverged describes a mismatch.
func diverged(m *mesh.Mismatch) error {
	local, remote := m.Local, m.Remote
	if local.Kind != remote.Kind {
		return fmt.Errorf("that rank is in %v %d, this one in %v: the ranks' programs have diverged",
			Kind(remote.Kind), m.Sequence, Kind(local.Kind))
	}
	if local.Bytes != remote.Bytes {
		return fmt.Errorf("that rank passes %d bytes and this one %d: the ranks' buffers differ in length", remote.Bytes, local.Bytes)
	}
	return fmt.Errorf("that rank passes %s and this one %s: the ranks' programs have diverged", arguments(remote), arguments(local))
}

func arguments(s mesh.Signature) string {
	text := fmt.Sprint(element.Type(s.Type))
	if s.Op != 0 {
		text += fmt.Sprint(", ", element.Op(s.Op))
	}
	if Kind(s.Kind).rooted() {
		text += fmt.Sprint(", root ", s.Root)
	}
	return text
}

// Signature returns the arguments that must be equal on all n ranks.
func (c *Call) Signature(n int) Signature {
	if c.parent != nil {
		return *c.parent
	}
	s := mesh.Signature{Kind: uint8(c.Kind), Type: uint8(c.Type), Bytes: uint64(c.Part(n))}
	if c.Kind.reduces() {
		s.Op = uint8(c.Op)
	}
	if c.Kind.rooted() {
		s.Root = int32(c.Root)
	}
	return s
}

// Split returns a communicator of the ranks that pass the same color.
func (g *group) Split(ctx context.Context, color, key int) (Communicator, error) {
	n := len(g.members)
	all := make([]int64, 2*n)
	if err := g.Do(ctx, AllGather(all, []int64{int64(color), int64(key)})); err != nil {
		return nil, err
	}
	g.mu.Lock()
	g.splits++
	nth := g.splits
	g.mu.Unlock()
	if color < 0 {
		return nil, nil
	}
	order := Order(all, color)
	members := make([]int, len(order))
	for i, r := range order {
		members[i] = g.members[r]
	}
	split, err := g.world.group(ctx, Derive(g.id, nth, color), members)
	if err != nil {
		return nil, err
	}
	return split, nil
}

// AllocBytes returns memory that the group's operations access directly: see [Alloc].
func (g *group) AllocBytes(ctx context.Context, bytes int) (b []byte, err error) {
	at := groupState{g.turns.Draw(), mesh.Signature{Kind: uint8(kindSplit)}}
	err = g.inTurn(ctx, at, func() error {
		b, err = g.engine.alloc(ctx, at.sequence, bytes)
		return err
	})
	return b, err
}

// errClosed is the cause if a group is closed during an operation.
var errClosed = errors.New("this rank has closed the communicator")

// Close closes the group. Closing the group of all ranks also closes the connections.
func (g *group) Close() (err error) {
	g.closing.Do(func() { err = g.close() })
	return err
}

func (g *group) close() error {
	g.mu.Lock()
	if g.broken == nil {
		g.broken = &Error{Op: "close", Peer: Peer{Rank: g.world.rank}, Err: net.ErrClosed}
	}
	g.mu.Unlock()
	close(g.ended)
	g.groups.remove(g)
	g.closeDetector()
	var err error
	if g.id == 0 {
		err = g.mesh.Close()
	}
	g.running.Wait() // running operations still use the shared memory
	return errors.Join(err, g.engine.close())
}
