package gemm

// kernel is a micro-kernel for one instruction set. Its packed operands consist of elements of 4
// bytes: a float32, which is one term of a sum, or a pair of bfloat16 values, which are two terms.
type kernel struct {
	// rows and cols are the size of the largest register tile of C, and lanes is the number of
	// elements in a register. All are zero for the portable code.
	rows, cols, lanes int
	// pair is the number of terms in a packed element, 1 or 2.
	pair int
	// tiles computes tiles of i+1 rows and up to j+1 registers at [j][i].
	tiles [2][]func(*tile)
	// copyRows and transpose pack from rows and from columns. convert packs rows without changing
	// their order. It is nil if a copy is sufficient.
	copyRows, transpose, convert func(*panel)
	// peak runs rounds of 2*rows multiply-adds of full registers.
	peak func(rounds uintptr)
	// masked is set if B is loaded and packed under a mask, so that a panel of any size can be
	// packed, and a panel of any width can be used in place.
	masked bool
}

// kernels are the micro-kernels of an instruction set, by operand type. They are the same for both
// types if bfloat16 values are multiplied as float32.
type kernels struct {
	name              string
	float32, bfloat16 *kernel
}

// tile holds the arguments of a micro-kernel: a register tile of C and the tiles of equal size
// after it, which the same call computes. The kernel advances a, b, c, and start to the last tile,
// not past it, because the garbage collector must not find pointers to freed memory. It needs no
// write barriers, because the worker keeps the operands alive. Strides are in bytes.
type tile struct {
	a, b, c                        *float32
	start                          *float32 // start values of the sums; nil for zero
	aRow, aCol, bRow               uintptr
	cRow, startRow                 uintptr
	aTile, bTile, cTile, startTile uintptr    // from one tile to the next
	tiles                          uintptr    // at least 1
	k                              uintptr    // number of packed elements, at least 1
	cols                           uintptr    // of C
	mask0, mask1                   uint16     // columns of the first and second AVX-512 register
	lanes                          *[16]int32 // -1 for each column, for AVX2
	// For each strip of 16 elements, the kernel prefetches cache lines: two of the next tile of C,
	// which advance by a row; and, in the first fetching tiles, two at fetch and two a row further,
	// which advance by fetchStep, and by fetchTile for the next tile. Prefetches of invalid
	// addresses are harmless.
	fetching                              int
	fetch, fetchRow, fetchStep, fetchTile uintptr
}

// panel holds the arguments of a packing function. Strides are in bytes.
type panel struct {
	src, dst             *float32
	srcStride, dstStride uintptr // between rows or between columns
	terms                uintptr // rows, or length of columns, at least 1
	cols                 uintptr // at least 1
	mask0, mask1         uint16  // as in tile
}

// laneMasks contains the masks of n lanes: the 16 elements from index 16-n.
var laneMasks = [32]int32{-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}

// masks returns the masks of the given number of columns, at most 32.
func masks(cols int) (uint16, uint16) {
	mask := uint32(1)<<cols - 1 // 1<<32 is 0
	return uint16(mask), uint16(mask >> 16)
}

// setColumns sets the number of columns of C in the tile.
func (t *tile) setColumns(cols int, masked bool) {
	t.cols = uintptr(cols)
	if masked {
		t.mask0, t.mask1 = masks(cols)
	} else {
		t.lanes = (*[16]int32)(laneMasks[16-cols:])
	}
}

// setPrefetches configures tiles to prefetch a share each of a panel of b with the given numbers of
// terms and columns. A share is two columns, whose cache lines are adjacent, or two rows per strip,
// with at most two cache lines each. It returns the number of shares.
func (t *tile) setPrefetches(b *Matrix, terms, cols, pair int) int {
	strips := (int(t.k) + line - 1) / line
	row, column := bytes(b.RowStride), bytes(b.ColStride)
	if b.RowStride == 1 {
		t.fetchRow, t.fetchStep, t.fetchTile = column, bytes(pair*line), 2*column
		return (cols + 1) / 2
	}
	t.fetchRow, t.fetchStep, t.fetchTile = row, 2*row, 2*uintptr(strips)*row
	return (terms + 2*strips - 1) / (2 * strips)
}

// at returns the address of element (i, j).
func at(m *Matrix, i, j int) *float32 { return &m.Data[i*m.RowStride+j*m.ColStride] }

// bytes returns the size of n elements.
func bytes(n int) uintptr { return uintptr(n) * 4 }
