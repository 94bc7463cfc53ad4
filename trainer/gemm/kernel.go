package gemm

// kernel computes products with one set of instructions. Its packed operands are
// made of elements of 4 bytes: a float32, which is one term of a sum, or a pair of
// bfloat16 numbers, which are two.
type kernel struct {
	// rows and cols are the largest tile of C that is held in registers, and
	// lanes the elements of one register. All are zero for the portable code.
	rows, cols, lanes int
	// pair is the number of terms in a packed element, 1 or 2.
	pair int
	// tiles computes tiles of i+1 rows and up to j+1 registers at [j][i].
	tiles [2][]func(*tile)
	// copyRows and transpose pack from rows and from columns. convert packs rows
	// without changing their order; it is nil where copying does.
	copyRows, transpose, convert func(*panel)
	// peak makes rounds of 2*rows multiply-adds of whole registers.
	peak func(rounds uintptr)
	// masked is set if B is loaded and packed under a mask, so that a panel of any
	// size can be packed, and one of any width be used where it lies.
	masked bool
}

// kernels are those of one kind of processor, for operands of each type. They are
// the same for both where bfloat16 numbers are multiplied as float32.
type kernels struct {
	name              string
	float32, bfloat16 *kernel
}

// tile is what assembly needs to know of a tile of C, and of those after it of the
// same size, which it computes in the same call. It moves a, b, c and start to the last
// of them, not past it, where the garbage collector would find pointers to nothing. It
// need not know of the moves, since the worker keeps the operands. Strides are in bytes.
type tile struct {
	a, b, c                        *float32
	start                          *float32 // what the sums start from, nil for zero
	aRow, aCol, bRow               uintptr
	cRow, startRow                 uintptr
	aTile, bTile, cTile, startTile uintptr    // from a tile to the next
	tiles                          uintptr    // at least 1
	k                              uintptr    // packed elements, at least 1
	cols                           uintptr    // of C
	mask0, mask1                   uint16     // columns of the first and second AVX-512 register
	lanes                          *[16]int32 // -1 for each column, for AVX2
	// For each strip of 16 elements, lines that will be needed are fetched into the
	// cache: two of the next tile of C, then going on by a row; and, in so many tiles
	// as fetching says, two at fetch and two a row further, then going on by a step,
	// and by fetchTile for the next tile. Lines that do not exist do no harm.
	fetching                              int
	fetch, fetchRow, fetchStep, fetchTile uintptr
}

// panel is what assembly needs to pack a part of an operand. Strides are in bytes.
type panel struct {
	src, dst             *float32
	srcStride, dstStride uintptr // from row to row, or from column to column
	terms                uintptr // rows, or length of columns, at least 1
	cols                 uintptr // at least 1
	mask0, mask1         uint16  // as in a tile
}

// laneMasks is what the masks of n lanes are cut from: the 16 from 16-n on.
var laneMasks = [32]int32{-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}

// masks are the bits of so many columns, of at most 32.
func masks(cols int) (uint16, uint16) {
	mask := uint32(1)<<cols - 1 // 1<<32 is 0
	return uint16(mask), uint16(mask >> 16)
}

// setColumns prepares access to so many columns of C.
func (t *tile) setColumns(cols int, masked bool) {
	t.cols = uintptr(cols)
	if masked {
		t.mask0, t.mask1 = masks(cols)
	} else {
		t.lanes = (*[16]int32)(laneMasks[16-cols:])
	}
}

// setFetches prepares that tiles fetch a share each of a panel of so many terms and
// columns of b: two columns, whose lines are next to each other, or in each strip two
// rows, which have two lines at most. It returns the number of shares.
func (t *tile) setFetches(b *Matrix, terms, cols, pair int) int {
	strips := (int(t.k) + line - 1) / line
	row, column := bytes(b.RowStride), bytes(b.ColStride)
	if b.RowStride == 1 {
		t.fetchRow, t.fetchStep, t.fetchTile = column, bytes(pair*line), 2*column
		return (cols + 1) / 2
	}
	t.fetchRow, t.fetchStep, t.fetchTile = row, 2*row, 2*uintptr(strips)*row
	return (terms + 2*strips - 1) / (2 * strips)
}

// at is the address of element (i, j).
func at(m *Matrix, i, j int) *float32 { return &m.Data[i*m.RowStride+j*m.ColStride] }

// bytes is the size of n elements.
func bytes(n int) uintptr { return uintptr(n) * 4 }
