package collective

import (
	"context"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/mesh"
)

// shared is the [engine] of ranks that can read each other's memory. An operation
// begins with every rank showing its arguments, and ends when no rank looks at
// another's memory any more. In between, ranks read what others bring where it lies, or
// where it does not lie in common memory, from windows that are copied into it.
type shared struct {
	*world
	members []int
	rank    int
	board   board
	// phase counts the times that all ranks have waited for each other, turn the
	// operations.
	phase, turn uint64
	trouble     time.Time     // when the present operation takes too long; zero until it waits
	limit       time.Duration // of its time
	slack       time.Duration // what it may take longer
	// doubt is how often the looks without pause are halved, because they were of no use:
	// others of this process may need this core.
	doubt int
	// together says that the rank that this one last gave way to was on its core; idle is
	// how long all cores had idled when that was last looked at, for another core.
	together bool
	idle     []int64
	seen     time.Time
	// room is for sums in the making, aligned for every element. On the stack it would
	// not stay: it is handed to functions of the element.
	room [block / 8]uint64
}

func (s *shared) run(ctx context.Context, sequence uint64, c *Call) error {
	n := len(s.members)
	if n == 1 && c.look != nil {
		c.look.take(0, c.look.bytes, func(int) []byte { return c.Send })
		return nil
	}
	if n == 1 {
		c.alone()
		return nil
	}
	s.limit = timeoutOf(ctx, s.timeout)
	turn := s.turn
	s.turn++
	small := c.look == nil && c.Kind == KindAllReduce && len(c.Send) <= smallRoom
	s.trouble = time.Time{}
	s.board.show(s.rank, turn, c, c.signature(n))
	if small {
		copy(s.board.small(s.rank, turn), c.Send)
	}
	if err := s.sync(ctx); err != nil {
		return err
	}
	mine := s.board.shown(s.rank, turn)
	direct := true
	for r := range n {
		theirs := s.board.shown(r, turn)
		if theirs.signature != mine.signature {
			return &mesh.Mismatch{Peer: s.members[r], Sequence: sequence, Ours: mine.signature, Theirs: theirs.signature}
		}
		direct = direct && theirs.visible
	}
	switch {
	case c.look != nil && direct && !c.look.hidden:
		c.look.take(0, c.look.bytes, func(r int) []byte { return s.board.send(r, turn) })
	case c.look != nil:
		return s.lookStaged(ctx, c)
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
		s.take(c, stretch{whole: c.part(n), n: c.part(n)}, func(r, p int) []byte {
			return s.board.send(r, turn)[p*c.part(n):][:c.part(n)]
		})
	default:
		return s.staged(ctx, c)
	}
	// Nobody may change what others still read.
	return s.sync(ctx)
}

func (s *shared) path(c *Call) Path {
	switch {
	case c.Kind == KindBarrier:
		return Path{Transport: s.board.name(), Algorithm: "flags"}
	case c.Kind == KindAllReduce && len(c.Send) <= smallRoom:
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
