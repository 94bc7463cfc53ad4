package collective

import "context"

// look is a part of an operation in which the ranks of a node read from the published buffers, at
// the same offsets in each.
type look struct {
	bytes int // length of each published buffer in bytes
	// hidden is set if the ranks publish the output of bring instead of the call's Send.
	hidden bool
	// bring copies the bytes that other ranks read, starting at from, to a window.
	bring func(window []byte, from int)
	// take receives these bytes of every rank's published buffer.
	take func(from, to int, shown func(r int) []byte)
}

// lookStaged runs a look through windows in shared memory, two of which are in use at a time.
func (s *shared) lookStaged(ctx context.Context, c *Call) error {
	for i := 0; i*windowRoom < c.look.bytes; i++ {
		from, to := i*windowRoom, min((i+1)*windowRoom, c.look.bytes)
		c.look.bring(s.board.window(s.rank, i)[:to-from], from)
		if err := s.sync(ctx); err != nil {
			return err
		}
		c.look.take(from, to, func(r int) []byte {
			if r == s.rank && !c.look.hidden {
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
