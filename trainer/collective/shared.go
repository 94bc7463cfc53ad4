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
	// the rank that is waited for may need this core.
	doubt int
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

// sync waits until all ranks have called it as often as this one.
func (s *shared) sync(ctx context.Context) error {
	s.phase++
	s.board.phase(s.rank).Store(s.phase)
	for r := range s.members {
		if err := s.await(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// How a rank waits: first it looks without pause, for as long as a rank that is nearly
// there may take, and less long while that is in vain, but never less than a small sum
// takes two ranks with a core each: else they would not find back to looking; then it
// lets others run; then it sleeps, longer and longer.
const (
	looks      = 20_000 // some 10 us
	mostDoubt  = 6
	yields     = 200
	firstSleep = 20 * time.Microsecond
	lastSleep  = 500 * time.Microsecond
)

func (s *shared) await(ctx context.Context, r int) error {
	phase := s.board.phase(r)
	if phase.Load() >= s.phase {
		return nil
	}
	for range s.board.looks() >> s.doubt {
		if phase.Load() >= s.phase {
			s.doubt = max(s.doubt-1, 0)
			return nil
		}
	}
	s.doubt = min(s.doubt+1, mostDoubt)
	sleep := firstSleep
	for i := 0; ; i++ {
		if phase.Load() >= s.phase {
			if i > yields {
				s.waiting.end()
			}
			return nil
		}
		if i < yields {
			s.board.giveWay(i)
			continue
		}
		if i == yields {
			s.waiting.begin(s.members[r])
		}
		if err := s.failed(ctx, r); err != nil {
			// It may have come this far and then ended.
			if phase.Load() >= s.phase {
				return nil
			}
			return err
		}
		time.Sleep(sleep)
		sleep = min(sleep*3/2, lastSleep)
	}
}

// failed is why it is no use to wait for a rank any longer.
func (s *shared) failed(ctx context.Context, r int) error {
	select {
	case <-s.ended:
		return &mesh.PeerError{Peer: s.world.rank, Err: errClosed}
	default:
	}
	if err := s.mesh.Lost(s.members); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return &mesh.PeerError{Peer: s.members[r], Err: context.Cause(ctx)}
	}
	now := time.Now()
	if s.trouble.IsZero() {
		s.trouble = now.Add(s.limit + s.slack)
	} else if now.After(s.trouble) {
		return &mesh.PeerError{Peer: s.members[r], Err: silence(s.limit)}
	}
	return nil
}
