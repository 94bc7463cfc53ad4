package gemm

import "unsafe"

// depth is how many terms of the sums a kernel takes at once. With the widest
// panel that is 512*32*4 bytes = 64 KiB of B, which stream from the second-level
// cache while the rows of A pass by. Measured on Zen 5: half of it costs up to a
// tenth on large squares, more gains nothing and costs where A is transposed.
const depth = 512

// packRows is the number of rows of A from which on it pays to copy a panel of B
// whose rows are far apart, so that it lies in one piece: measured between 128,
// where the copy costs 5%, and 256, where it gains nothing but with AVX2 at large
// strides, where it gains a third.
const packRows = 192

// kernel computes products with one set of instructions.
type kernel struct {
	name string
	// rows and cols are the largest tile of C that is held in registers, and
	// lanes the elements of one register. All are zero for the portable code.
	rows, cols, lanes int
	// tiles computes a tile of i+1 rows and up to j+1 registers at [j][i].
	tiles [2][]func(*tile)
	// copyRows and transpose fill a panel from rows and from columns.
	copyRows, transpose func(*panel)
	// peak makes rounds of 2*rows multiply-adds of whole registers.
	peak func(rounds uintptr)
	// masked is set if B is loaded under a mask, so that a panel of any width can
	// be used where it lies.
	masked bool
}

// tile is what assembly needs to know of a tile of C. Strides are in bytes.
type tile struct {
	a, b, c          *float32
	aRow, aCol, bRow uintptr
	cRow             uintptr
	k                uintptr   // terms, at least 1
	accumulate       uintptr   // 0: sums start from zero, 1: from C
	cols             uintptr   // of C
	mask0, mask1     uint16    // columns of the first and second AVX-512 register
	lanes            [16]int32 // -1 for each column, for AVX2
}

// panel is what assembly needs to copy a part of B. Strides are in bytes.
type panel struct {
	src, dst     *float32
	srcStride    uintptr // from row to row, or from column to column
	k            uintptr // rows to write
	mask0, mask1 uint16
}

// newRoom returns room for what a kernel copies, aligned to a cache line.
func (k *kernel) newRoom() []float32 {
	if k.cols == 0 {
		return make([]float32, depth*(2+portableRows))
	}
	const line = 64 / 4
	room := make([]float32, depth*k.cols+line)
	off := (64 - uintptr(unsafe.Pointer(&room[0]))%64) % 64 / 4
	return room[off:][:depth*k.cols]
}

// multiply computes the worker's product.
func (k *kernel) multiply(w *worker) {
	if k.cols == 0 {
		multiplyPortable(w)
		return
	}
	terms := w.a.Cols
	step := split(terms, depth, 16)
	for p := 0; p < terms; p += step {
		n := min(step, terms-p)
		accumulate := w.accumulate || p > 0
		for j := 0; j < w.c.Cols; j += k.cols {
			k.column(w, p, n, j, min(k.cols, w.c.Cols-j), accumulate)
		}
	}
}

// column adds n terms from p on to the cols columns of C from j on.
func (k *kernel) column(w *worker, p, n, j, cols int, accumulate bool) {
	t := &w.tile
	mask := uint32(1)<<cols - 1 // cols is at most 32, and 1<<32 is 0
	t.mask0, t.mask1 = uint16(mask), uint16(mask>>16)
	t.cols = uintptr(cols)
	for i := range t.lanes {
		t.lanes[i] = 0
		if i < cols {
			t.lanes[i] = -1
		}
	}
	t.k, t.accumulate = uintptr(n), 0
	if accumulate {
		t.accumulate = 1
	}
	t.aRow, t.aCol, t.cRow = bytes(w.a.RowStride), bytes(w.a.ColStride), bytes(w.c.RowStride)

	direct := w.b.ColStride == 1 && w.c.Rows < packRows && (k.masked || cols%k.lanes == 0)
	if direct {
		t.b, t.bRow = at(w.b, p, j), bytes(w.b.RowStride)
	} else {
		k.pack(w, p, n, j, cols)
		t.b, t.bRow = &w.room[0], bytes(k.cols)
	}

	tiles := k.tiles[(cols-1)/k.lanes]
	rows := w.c.Rows
	for i, left := 0, (rows+k.rows-1)/k.rows; left > 0; left-- {
		high := (rows - i + left - 1) / left // tiles of nearly the same height
		t.a, t.c = at(w.a, i, p), at(w.c, i, j)
		tiles[high-1](t)
		i += high
	}
}

// split returns the smallest multiple of unit that divides n into no more parts
// than limit does.
func split(n, limit, unit int) int {
	parts := (n + limit - 1) / limit
	size := (n + parts - 1) / parts
	return (size + unit - 1) / unit * unit
}

// at is the address of element (i, j).
func at(m Matrix, i, j int) *float32 { return &m.Data[i*m.RowStride+j*m.ColStride] }

// bytes is the size of n elements.
func bytes(n int) uintptr { return uintptr(n) * 4 }
