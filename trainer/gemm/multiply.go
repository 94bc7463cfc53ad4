package gemm

import "unsafe"

// The multiplication is blocked (Goto and van de Geijn, Anatomy of high-performance matrix
// multiplication, 2008). The loops are, from the outside: column blocks of B, blocks of terms, row
// blocks of A, panels of B, and register tiles of C. The block of A stays in the L2 cache during
// all panels of B, and a panel stays in the L1 cache during all tiles of the block. If a whole
// block of B fits the L1 cache, C is computed by rows of tiles instead.
const (
	// depth is the number of packed elements that a kernel processes in one call. With the widest
	// panel that is 512*32*4 bytes = 64 KiB of B. Half of it is up to a tenth slower for large
	// square matrices, measured on Zen 5.
	depth = 512

	// height is the number of rows of a block of A: 19 tiles of 14 rows, 266*512*4 bytes = 532 KiB.
	height = 266

	// width is the number of columns of a block of B: 1024*512*4 bytes = 2 MiB.
	width = 1024

	// line is the number of elements in a cache line, and in a strip, after which kernels prefetch.
	line = 16
)

// packRows is the number of rows of A that justifies packing a panel of B with strided rows. It was
// measured between 128 rows, where the copy costs 5%, and 256 rows, where it gains nothing, except
// with AVX2 and large strides, where it gains a third.
const packRows = 192

// packCols is the number of columns of B that justifies packing a block of A. It was measured
// between 256 columns, where the copy costs up to 5%, and 512 columns, where it gains at least 4%,
// and more if the row stride of A is a multiple of the page size.
const packCols = 384

// l1Terms is the size in elements of a block of A or B that stays in the L1 cache anyway, so that
// it is not packed: 32 KiB.
const l1Terms = 1 << 13

// newBuffers returns buffers for a packed block of A and of B, both aligned to a cache line.
func (k *kernel) newBuffers() (a, b []float32) {
	if k.cols == 0 {
		return make([]float32, portableRows*depth), make([]float32, 2*depth)
	}
	return aligned((height + 2*line) * (depth + 2*line)), aligned(depth * width)
}

// aligned returns n elements, aligned to a cache line.
func aligned(n int) []float32 {
	buffer := make([]float32, n+line)
	off := -uintptr(unsafe.Pointer(&buffer[0])) % (4 * line) / 4
	return buffer[off:][:n]
}

// multiply computes the worker's part of the product.
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

// block adds n terms, starting at p, to the rows of C from top and to its columns from left to
// before right. start holds the values to which they are added, for all of C.
func (w *worker) block(start *Matrix, top, rows, left, right, p, n int) {
	k, t := w.kernel, &w.tile
	elements := (n + k.pair - 1) / k.pair
	a := w.a.part(top, p, rows, n)
	if k.pair == 2 || w.round || right-left >= packCols && rows*n > l1Terms {
		a = k.packA(w, a)
	}
	t.k = uintptr(elements)
	t.aRow, t.aCol = bytes(a.RowStride), bytes(a.ColStride)
	t.cRow, t.startRow = bytes(w.c.RowStride), bytes(start.RowStride)
	tiles := (rows + k.rows - 1) / k.rows
	high, higher := rows/tiles, rows%tiles // the first higher tiles have one more row
	stacks := [2]stack{{high + 1, higher}, {high, tiles - higher}}
	if cols := right - left; w.usesInPlace(cols) && n*cols <= l1Terms {
		w.computeByRows(&a, start, stacks, top, left, right, p)
	} else {
		w.computeByPanels(&a, start, stacks, top, left, right, p, n)
	}
}

// stack is a number of tiles of equal height in a column.
type stack struct{ rows, tiles int }

// usesInPlace reports whether the kernel can use this number of columns of B in place.
func (w *worker) usesInPlace(cols int) bool {
	k := w.kernel
	return w.b.ColStride == 1 && k.pair == 1 && !w.round && (k.masked || cols%k.lanes == 0)
}

// computeByRows computes a block by rows of tiles, for a B that fits the L1 cache. The row stride
// of C is often a multiple of half a page. Down a column, all cache lines of C would then compete
// for the same few cache sets, also with cache lines of B. With 512 columns, this costs a seventh of
// the speed with 10 terms, and half of it with 4.
func (w *worker) computeByRows(a, start *Matrix, stacks [2]stack, top, left, right, p int) {
	k, t := w.kernel, &w.tile
	t.bRow, t.fetching = bytes(w.b.RowStride), 0
	t.aTile, t.bTile, t.cTile, t.startTile = 0, bytes(k.cols), bytes(k.cols), 0
	if start.Data != nil {
		t.startTile = bytes(k.cols)
	}
	last := right - (right-left)%k.cols // first column that does not fill a tile
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

// computeByPanels computes a block by panels of B with n terms, starting at p, and columns of
// tiles.
func (w *worker) computeByPanels(a, start *Matrix, stacks [2]stack, top, left, right, p, n int) {
	k, t := w.kernel, &w.tile
	rows, elements := a.Rows, int(t.k)
	shares := t.setPrefetches(&w.b, n, k.cols, k.pair)
	t.bTile = 0
	for j := left; j < right; j += k.cols {
		cols, next := min(k.cols, right-j), j+k.cols
		direct := w.c.Rows < packRows && w.usesInPlace(cols)
		if direct {
			t.b, t.bRow = at(&w.b, p, j), bytes(w.b.RowStride)
		} else {
			panel := w.bBuffer
			if rows < w.c.Rows { // other blocks need the panel also
				panel = panel[(j-left)*elements:]
			}
			packed := Dense(panel[:k.cols*elements], elements, k.cols)
			if top == 0 {
				k.packB(w, packed, w.b.part(p, j, n, cols))
			}
			t.b, t.bRow = &packed.Data[0], bytes(k.cols)
		}
		t.fetching = 0
		if next < right && (direct || top == 0) { // the next panel is not packed yet
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

// tiles computes n tiles of equal size, the first at (i, j).
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

// split returns the smallest multiple of unit that divides n into at most as many parts as limit
// does.
func split(n, limit, unit int) int {
	parts := (n + limit - 1) / limit
	size := (n + parts - 1) / parts
	return (size + unit - 1) / unit * unit
}
