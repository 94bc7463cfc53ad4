package gemm

import "unsafe"

// The product is computed in blocks (Goto and van de Geijn, Anatomy of
// high-performance matrix multiplication, 2008): for some columns of B, for some
// of the terms, for some rows of A, panel by panel of B and tile by tile of C. The
// block of A stays in the second-level cache while all panels of B pass by, and a
// panel while all tiles of the block do.
const (
	// depth is how many packed elements a kernel takes at once. With the widest
	// panel that is 512*32*4 bytes = 64 KiB of B. Measured on Zen 5: half of it
	// costs up to a tenth on large squares.
	depth = 512

	// height is the number of rows of a block of A, 19 tiles of 14:
	// 266*512*4 bytes = 532 KiB.
	height = 266

	// width is the number of columns of a block of B: 1024*512*4 bytes = 2 MiB.
	width = 1024

	// line is the number of elements in a cache line, and in a strip, after which
	// kernels fetch lines.
	line = 16
)

// packRows is the number of rows of A from which on it pays to copy a panel of B
// whose rows are far apart, so that it lies in one piece: measured between 128,
// where the copy costs 5%, and 256, where it gains nothing but with AVX2 at large
// strides, where it gains a third.
const packRows = 192

// packCols is the number of columns of B from which on it pays to copy a block of A:
// measured between 256, where the copy costs up to 5%, and 512, where it gains 4% at
// least, and more where the rows of A are a multiple of a page apart.
const packCols = 384

// packTerms is the size of a block of A from which on it may be copied: 32 KiB, which
// stay in the first-level cache in any case.
const packTerms = 1 << 13

// newRooms returns room for a packed block of A, and one of B, both aligned to a
// cache line.
func (k *kernel) newRooms() (a, b []float32) {
	if k.cols == 0 {
		return make([]float32, portableRows*depth), make([]float32, 2*depth)
	}
	return aligned((height + 2*line) * (depth + 2*line)), aligned(depth * width)
}

// aligned returns n elements from the beginning of a cache line on.
func aligned(n int) []float32 {
	room := make([]float32, n+line)
	off := -uintptr(unsafe.Pointer(&room[0])) % (4 * line) / 4
	return room[off:][:n]
}

// multiply computes the worker's product.
func (w *worker) multiply() {
	k := w.kernel
	if k.cols == 0 {
		multiplyPortable(w)
		return
	}
	rows, cols, terms := w.c.Rows, w.c.Cols, w.a.Cols
	wide, deep, high := split(cols, width, k.cols), split(terms, depth*k.pair, line*k.pair), split(rows, height, k.rows)
	for left := 0; left < cols; left += wide {
		right := min(left+wide, cols)
		start := &w.start
		for p := 0; p < terms; p += deep {
			n := min(deep, terms-p)
			for top := 0; top < rows; top += high {
				w.block(start, top, min(high, rows-top), left, right, p, n)
			}
			start = &w.c
		}
	}
}

// block adds n terms from p on to rows of C from top on, and its columns from left to
// before right. Start is the whole of what they are added to.
func (w *worker) block(start *Matrix, top, rows, left, right, p, n int) {
	k, t := w.kernel, &w.tile
	elements := (n + k.pair - 1) / k.pair
	a := w.a.part(top, p, rows, n)
	if k.pair == 2 || w.round || right-left >= packCols && rows*n >= packTerms {
		a = k.packA(w, a)
	}
	t.k = uintptr(elements)
	t.aRow, t.aCol = bytes(a.RowStride), bytes(a.ColStride)
	t.cRow, t.startRow = bytes(w.c.RowStride), bytes(start.RowStride)
	tiles := (rows + k.rows - 1) / k.rows
	high, higher := rows/tiles, rows%tiles // so many are a row higher than the others
	for j := left; j < right; j += k.cols {
		cols := min(k.cols, right-j)
		direct := w.b.ColStride == 1 && w.c.Rows < packRows && (k.masked || cols%k.lanes == 0) && k.pair == 1 && !w.round
		if direct {
			t.b, t.bRow = at(&w.b, p, j), bytes(w.b.RowStride)
		} else {
			room := w.bRoom
			if rows < w.c.Rows { // other blocks need the panel too
				room = room[(j-left)*elements:]
			}
			packed := Dense(room[:k.cols*elements], elements, k.cols)
			if top == 0 {
				k.packB(w, packed, w.b.part(p, j, n, cols))
			}
			t.b, t.bRow = &packed.Data[0], bytes(k.cols)
		}
		var next Matrix // panel, unless it is packed already
		if j+k.cols < right && (direct || top == 0) {
			next = w.b.part(p, j+k.cols, n, min(k.cols, right-j-k.cols))
		}
		t.setColumns(cols, k.masked)
		kernels := k.tiles[(cols-1)/k.lanes]
		for x, i := 0, top; x < tiles; x++ {
			t.a, t.c, t.start = at(&a, i-top, 0), at(&w.c, i, j), nil
			if start.Data != nil {
				t.start = at(start, i, j)
			}
			rows := high
			if x < higher {
				rows++
			}
			i += rows
			t.fetchC = t.c
			if x < tiles-1 {
				t.fetchC = at(&w.c, i, j)
			}
			t.fetchShare(&next, x, k.pair)
			kernels[rows-1](t)
		}
	}
}

// split returns the smallest multiple of unit that divides n into no more parts
// than limit does.
func split(n, limit, unit int) int {
	parts := (n + limit - 1) / limit
	size := (n + parts - 1) / parts
	return (size + unit - 1) / unit * unit
}
