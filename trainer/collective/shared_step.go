package collective

import "context"

// sharedStep is a part of an operation in which the ranks of a node read from the published
// buffers, at the same offsets in each.
type sharedStep struct {
	bytes int // length of each published buffer in bytes
	// staged is set if the ranks publish the output of fill instead of the call's Send.
	staged bool
	// fill copies the bytes that other ranks read, starting at from, to a window.
	fill func(window []byte, from int)
	// read receives these bytes of every rank's published buffer.
	read func(from, to int, shown func(r int) []byte)
}

// runStaged runs c.step through windows in shared memory, two of which are in use at a time.
func (s *shared) runStaged(ctx context.Context, c *Call) error {
	for i := 0; i*windowBytes < c.step.bytes; i++ {
		from, to := i*windowBytes, min((i+1)*windowBytes, c.step.bytes)
		c.step.fill(s.board.window(s.rank, i)[:to-from], from)
		if err := s.sync(ctx); err != nil {
			return err
		}
		c.step.read(from, to, func(r int) []byte {
			if r == s.rank && !c.step.staged {
				return c.Send[from:to]
			}
			return s.board.window(r, i)[:to-from]
		})
	}
	return nil
}

// pieces is a division of a buffer into pieces, each with a rank of the node that works on it.
type pieces struct {
	division
	worker []int // local index of the rank that works on each piece
	size   int   // bytes per element
}

// each calls do for every piece that overlaps the bytes between from and to, with the overlap.
func (p pieces) each(from, to int, do func(i, from, to int)) {
	count := len(p.buf) / p.size
	if count == 0 {
		return
	}
	for i := from / p.size * len(p.worker) / count; i < len(p.worker) && p.cut(i) < to; i++ {
		if a, b := max(from, p.cut(i)), min(to, p.cut(i+1)); a < b {
			do(i, a, b)
		}
	}
}
