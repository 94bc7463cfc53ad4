package gemm

import "unsafe"

// The product is computed in blocks (Goto and van de Geijn, Anatomy of
// high-performance matrix multiplication, 2008): for some columns of B, for some
// of the terms, for some rows of A, panel by panel of B and tile by tile of C. The
// block of A stays in the second-level cache while all panels of B pass by, and a
// panel while all tiles of the block do. A small block of B stays in the first-level
// cache as a whole: then C is computed by rows of tiles.
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

// nearTerms is the size of a block of A or B that stays in the first-level cache in any
// case, so that it need not be copied: 32 KiB.
const nearTerms = 1 << 13

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
	if k.pair == 2 || w.round || right-left >= packCols && rows*n > nearTerms {
		a = k.packA(w, a)
	}
	t.k = uintptr(elements)
	t.aRow, t.aCol = bytes(a.RowStride), bytes(a.ColStride)
	t.cRow, t.startRow = bytes(w.c.RowStride), bytes(start.RowStride)
	tiles := (rows + k.rows - 1) / k.rows
	high, higher := rows/tiles, rows%tiles // so many are a row higher than the others
	stacks := [2]stack{{high + 1, higher}, {high, tiles - higher}}
	if cols := right - left; w.usable(cols) && n*cols <= nearTerms {
		w.across(&a, start, stacks, top, left, right, p)
	} else {
		w.down(&a, start, stacks, top, left, right, p, n)
	}
}

// stack is some tiles of the same height, one below the other.
type stack struct{ rows, tiles int }

// usable reports whether the kernel can use so many columns of B where they lie.
func (w *worker) usable(cols int) bool {
	k := w.kernel
	return w.b.ColStride == 1 && k.pair == 1 && !w.round && (k.masked || cols%k.lanes == 0)
}

// across computes a block by rows of tiles, for a B that the first-level cache holds.
// Rows of C are often a multiple of half a page apart: down a column, all their lines
// would compete for the same few sets of that cache, and with those of B. Measured with
// 512 columns: a seventh of the speed with 10 terms, half of it with 4.
func (w *worker) across(a, start *Matrix, stacks [2]stack, top, left, right, p int) {
	k, t := w.kernel, &w.tile
	t.bRow, t.fetching = bytes(w.b.RowStride), 0
	t.aTile, t.bTile, t.cTile, t.startTile = 0, bytes(k.cols), bytes(k.cols), 0
	if start.Data != nil {
		t.startTile = bytes(k.cols)
	}
	last := right - (right-left)%k.cols // where the columns begin that fill no tile
	i := top
	for _, s := range stacks {
		for range s.tiles {
			t.a, t.b = at(a, i-top, 0), at(&w.b, p, left)
			if left < last {
				w.tiles(start, i, left, s.rows, k.cols, (last-left)/k.cols)
			}
			if last < right {
				t.b = at(&w.b, p, last)
				w.tiles(start, i, last, s.rows, right-last, 1)
			}
			i += s.rows
		}
	}
}

// down computes a block by panels of B, of n terms from p on, and columns of tiles.
func (w *worker) down(a, start *Matrix, stacks [2]stack, top, left, right, p, n int) {
	k, t := w.kernel, &w.tile
	rows, elements := a.Rows, int(t.k)
	shares := t.setFetches(&w.b, n, k.cols, k.pair)
	t.bTile = 0
	for j := left; j < right; j += k.cols {
		cols, next := min(k.cols, right-j), j+k.cols
		direct := w.c.Rows < packRows && w.usable(cols)
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
		t.fetching = 0
		if next < right && (direct || top == 0) { // it is not packed already
			t.fetch, t.fetching = uintptr(unsafe.Pointer(at(&w.b, p, next))), shares
		}
		i := top
		for _, s := range stacks {
			if s.tiles == 0 {
				continue
			}
			t.a = at(a, i-top, 0)
			t.aTile, t.cTile, t.startTile = uintptr(s.rows)*t.aRow, uintptr(s.rows)*t.cRow, uintptr(s.rows)*t.startRow
			w.tiles(start, i, j, s.rows, cols, s.tiles)
			i += s.rows * s.tiles
		}
	}
}

// tiles computes n tiles of the same size, the first of them at (i, j).
func (w *worker) tiles(start *Matrix, i, j, rows, cols, n int) {
	k, t := w.kernel, &w.tile
	t.c, t.start = at(&w.c, i, j), nil
	if start.Data != nil {
		t.start = at(start, i, j)
	}
	t.tiles = uintptr(n)
	t.setColumns(cols, k.masked)
	k.tiles[(cols-1)/k.lanes][rows-1](t)
}

// split returns the smallest multiple of unit that divides n into no more parts
// than limit does.
func split(n, limit, unit int) int {
	parts := (n + limit - 1) / limit
	size := (n + parts - 1) / parts
	return (size + unit - 1) / unit * unit
}
