package collective

import (
	"context"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
)

// block is the number of bytes that are reduced at a time. Blocks of two ranks are still in the L1
// cache when the result is copied to the other ranks.
const block = 16 << 10

// line is the size of a cache line in bytes, a multiple of every element size. Ranks that work on
// parts of one buffer do not share a cache line.
const line = 64

// lines returns the range of part i of n, in whole cache lines. to is not part of it.
func lines(bytes, n, i int) (from, to int) {
	count := (bytes + line - 1) / line
	return min(count*i/n*line, bytes), min(count*(i+1)/n*line, bytes)
}

// reduceParts stores the reduction of all ranks' parts, in the order of the ranks, in dst, which
// may be one of the parts.
func (s *shared) reduceParts(c *Call, dst []byte, part func(r int) []byte) {
	n := len(s.members)
	switch n {
	case 1:
		copy(dst, part(0))
		return
	case 2:
		c.combine(dst, part(0), part(1))
		return
	}
	temporary := element.Bytes(s.partialSums[:])
	for from := 0; from < len(dst); from += block {
		to := min(from+block, len(dst))
		sum := temporary[:to-from]
		c.combine(sum, part(0)[from:to], part(1)[from:to])
		for r := 2; r < n-1; r++ {
			c.combine(sum, sum, part(r)[from:to])
		}
		c.combine(dst[from:to], sum, part(n - 1)[from:to])
	}
}

// reduceForAll reduces parts, one per rank, and copies the result to every rank's part.
func (s *shared) reduceForAll(c *Call, bytes int, part func(r int) []byte) {
	for from := 0; from < bytes; from += block {
		to := min(from+block, bytes)
		sum := part(s.rank)[from:to]
		s.reduceParts(c, sum, func(r int) []byte { return part(r)[from:to] })
		c.Op.Finish(c.Type, sum, len(s.members))
		for r := range s.members {
			if r != s.rank {
				copy(part(r)[from:to], sum)
			}
		}
	}
}

// allReduceInPlace makes each rank reduce one part of all buffers and store the result in all of
// them. Each element is read once and written once.
func (s *shared) allReduceInPlace(c *Call, turn uint64) {
	from, to := lines(len(c.Recv), len(s.members), s.rank)
	s.reduceForAll(c, to-from, func(r int) []byte { return s.board.send(r, turn)[from:to] })
}

// allReduceStaged does the same through windows in shared memory. Three of them are in use at a time:
// one is filled, one is reduced, and one is emptied. A rank does not copy its own part.
func (s *shared) allReduceStaged(ctx context.Context, c *Call) error {
	n, buf := len(s.members), c.Recv
	count := (len(buf) + windowBytes - 1) / windowBytes
	bounds := func(i int) (start, end int) { return i * windowBytes, min((i+1)*windowBytes, len(buf)) }
	// others calls do for the parts of a window that belong to other ranks.
	others := func(i int, do func(part, window []byte)) {
		start, end := bounds(i)
		from, to := lines(end-start, n, s.rank)
		w := s.board.window(s.rank, i)
		do(buf[start:start+from], w[:from])
		do(buf[start+to:end], w[to:])
	}
	for i := 0; ; i++ {
		if i < count {
			others(i, func(part, window []byte) { copy(window, part) })
		}
		if i >= 2 {
			others(i-2, func(part, window []byte) { copy(part, window) })
		}
		if i >= 1 && i <= count {
			start, end := bounds(i - 1)
			from, to := lines(end-start, n, s.rank)
			s.reduceForAll(c, to-from, func(r int) []byte {
				if r == s.rank {
					return buf[start+from : start+to]
				}
				return s.board.window(r, i-1)[from:to]
			})
		}
		if i == count+1 {
			return nil // only this rank uses the last window
		}
		if err := s.sync(ctx); err != nil {
			return err
		}
	}
}

// partRange is the range of each part that ranks process in one step.
type partRange struct {
	whole int // length of a part in bytes
	from  int
	n     int
}

// receive copies or reduces a range of the other ranks' parts into this rank's buffer. shown
// returns part p of rank r within the range. Broadcast, reduce, gather, and all-gather have one
// part per rank.
func (s *shared) receive(c *Call, w partRange, shown func(r, p int) []byte) {
	to := w.from + w.n
	switch c.Kind {
	case KindBroadcast:
		if s.rank != c.Root {
			copy(c.Recv[w.from:to], shown(c.Root, 0))
		}
	case KindReduce:
		if s.rank == c.Root {
			s.reduceParts(c, c.Recv[w.from:to], func(r int) []byte { return shown(r, 0) })
			c.Op.Finish(c.Type, c.Recv[w.from:to], len(s.members))
		}
	case KindReduceScatter:
		s.reduceParts(c, c.Recv[w.from:to], func(r int) []byte { return shown(r, s.rank) })
		c.Op.Finish(c.Type, c.Recv[w.from:to], len(s.members))
	case KindScatter:
		copy(c.Recv[w.from:to], shown(c.Root, s.rank))
	case KindGather, KindAllGather, KindAllToAll:
		if c.Kind == KindGather && s.rank != c.Root {
			return
		}
		part := 0
		if c.Kind == KindAllToAll {
			part = s.rank
		}
		for r := range s.members {
			// This rank's own part may already be in its position, where others read it.
			if to, from := c.Recv[r*w.whole+w.from:][:w.n], shown(r, part); unsafe.SliceData(to) != unsafe.SliceData(from) {
				copy(to, from)
			}
		}
	}
}

// staged copies each rank's data through windows in shared memory, two of which are in use at a
// time: others may still read one while the next is filled.
func (s *shared) staged(ctx context.Context, c *Call) error {
	n, whole := len(s.members), c.Part(len(s.members))
	parts := 1
	if c.Kind == KindScatter || c.Kind == KindAllToAll || c.Kind == KindReduceScatter {
		parts = n
	}
	step := windowBytes / parts / line * line
	for i := 0; i*step < whole; i++ {
		w := partRange{whole, i * step, min(step, whole-i*step)}
		if !c.Kind.rooted() || c.Kind == KindGather || c.Kind == KindReduce || s.rank == c.Root {
			for p := range parts {
				copy(s.board.window(s.rank, i)[p*step:][:w.n], c.Send[p*whole+w.from:])
			}
		}
		if err := s.sync(ctx); err != nil {
			return err
		}
		s.receive(c, w, func(r, p int) []byte { return s.board.window(r, i)[p*step:][:w.n] })
	}
	return nil
}
