package collective

import "context"

// look is a part of an operation in which the ranks of a node take from what others
// show, at the same places of all buffers.
type look struct {
	bytes int // of a buffer that is shown
	// hidden says that what is shown is not the call's Send but what bring copies.
	hidden bool
	// bring copies what others take of the bytes from on into a window.
	bring func(window []byte, from int)
	// take is given those bytes of what a rank shows, if it shows anything.
	take func(from, to int, shown func(r int) []byte)
}

// lookStaged has ranks bring what they show into windows of common memory, two of
// which are in use at a time.
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

// pieces is a division of a buffer whose pieces are worked on by ranks of a node.
type pieces struct {
	division
	worker []int // of each piece, a place in the node
	size   int   // of an element
}

// each calls do with every piece that has bytes between from and to, and which these
// are.
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
