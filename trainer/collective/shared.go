package collective

import (
	"context"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/mesh"
)

// shared is the [engine] of ranks that can access each other's memory. In an operation, every rank
// first publishes its arguments, and returns only after no rank reads its memory anymore. In
// between, ranks read the buffers of the others directly if these are in shared memory. Otherwise
// each rank copies its buffer through windows in shared memory.
type shared struct {
	*world
	members []int
	rank    int
	board   board
	// phase counts the synchronizations of all ranks; turn counts the operations.
	phase, turn uint64
	deadline    time.Time     // deadline of the present operation; zero until it waits
	opTimeout   time.Duration // timeout of the present operation
	slack       time.Duration // allowed in addition to the timeout
	// spinBackoff is the number of times that the spin count is halved because spinning was
	// unsuccessful: other goroutines or processes may need this core.
	spinBackoff int
	// sameCore reports whether the rank that this one last yielded to ran on the same core. idle is
	// the idle time of each core when it was last sampled, to find another core.
	sameCore    bool
	idle        []int64
	idleSampled time.Time
	// contendedUntil is the time until which this rank does not yield to processes. The other fields
	// are the time and the CPU time of this process at the start of the latest wait that yielded to
	// processes from the beginning.
	contendedUntil time.Time
	yieldsBegan    time.Time
	cpuTime        time.Duration
	// partialSums holds partial sums and is aligned for every element type. It would escape from
	// the stack, because it is passed to functions of the element type.
	partialSums [block / 8]uint64
}

// run performs a call in shared memory. Before the first synchronization, ranks publish their calls, so
// they detect a mismatch before they read data. After the last one, no rank reads this rank's buffers.
func (s *shared) run(ctx context.Context, sequence uint64, c *Call) error {
	n := len(s.members)
	if n == 1 && c.step != nil {
		c.step.read(0, c.step.bytes, func(int) []byte { return c.Send })
		return nil
	}
	if n == 1 {
		c.copyOwn()
		return nil
	}
	s.opTimeout = TimeoutOf(ctx, s.timeout)
	turn := s.turn
	s.turn++
	small := c.step == nil && c.Kind == KindAllReduce && len(c.Send) <= smallBytes
	s.deadline = time.Time{}
	s.board.publish(s.rank, turn, c, c.Signature(n))
	if small {
		copy(s.board.small(s.rank, turn), c.Send)
	}
	if err := s.sync(ctx); err != nil {
		return err
	}
	own := s.board.published(s.rank, turn)
	direct := true
	for r := range n {
		peer := s.board.published(r, turn)
		if peer.signature != own.signature {
			return &mesh.Mismatch{Peer: s.members[r], Sequence: sequence, Local: own.signature, Remote: peer.signature}
		}
		direct = direct && peer.visible
	}
	switch {
	case c.step != nil && direct && !c.step.staged:
		c.step.read(0, c.step.bytes, func(r int) []byte { return s.board.send(r, turn) })
	case c.step != nil:
		return s.runStaged(ctx, c)
	case c.Kind == KindBarrier:
		return nil
	case small:
		s.reduceParts(c, c.Recv, func(r int) []byte { return s.board.small(r, turn)[:len(c.Recv)] })
		c.Op.Finish(c.Type, c.Recv, n)
		return nil
	case c.Kind == KindAllReduce && direct:
		s.allReduceInPlace(c, turn)
	case c.Kind == KindAllReduce:
		return s.allReduceStaged(ctx, c)
	case direct:
		s.receive(c, partRange{whole: c.Part(n), n: c.Part(n)}, func(r, p int) []byte {
			return s.board.send(r, turn)[p*c.Part(n):][:c.Part(n)]
		})
	default:
		return s.staged(ctx, c)
	}
	// No rank may change its buffer while others still read it.
	return s.sync(ctx)
}

func (s *shared) path(c *Call) Path {
	switch {
	case c.Kind == KindBarrier:
		return Path{Transport: s.board.name(), Algorithm: "flags"}
	case c.Kind == KindAllReduce && len(c.Send) <= smallBytes:
		return Path{Transport: s.board.name(), Algorithm: "one step"}
	case s.board.visible(s.rank, c):
		return Path{Transport: s.board.name(), Algorithm: "in place"}
	}
	return Path{Transport: s.board.name(), Algorithm: "windows"}
}

func (s *shared) alloc(ctx context.Context, _ uint64, bytes int) ([]byte, error) {
	return s.board.alloc(ctx, s, bytes)
}

func (s *shared) close() error { return s.board.close() }
