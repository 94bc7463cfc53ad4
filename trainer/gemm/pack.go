package gemm

// packA copies a block of A into the worker's buffer and returns the copy. Contiguous rows or
// columns remain contiguous, but their stride is a few cache lines instead of pages.
func (k *kernel) packA(w *worker, a Matrix) Matrix {
	elements := (a.Cols + k.pair - 1) / k.pair
	packed := Matrix{Data: w.aBuffer, Rows: a.Rows, Cols: elements, RowStride: paddedStride(elements), ColStride: 1}
	columns := a.RowStride == 1 && a.ColStride != 1
	if columns {
		packed.RowStride, packed.ColStride = 1, paddedStride(a.Rows)
	}
	switch {
	case columns && k.pair == 1:
		copyRows(packed.T(), a.T())
	case columns:
		for i := 0; i < a.Rows; i += k.cols {
			rows := min(k.cols, a.Rows-i)
			w.pack(k.copyRows, packed.part(i, 0, rows, elements).T(), a.part(i, 0, rows, a.Cols).T(), a.ColStride)
		}
	case a.ColStride == 1 && k.pair == 1:
		copyRows(packed, a)
	case a.ColStride == 1:
		w.pack(k.convert, packed, a, a.RowStride)
	default:
		k.packElements(packed.T(), a.T())
	}
	if w.round {
		roundAll(w.aBuffer[:(a.Rows-1)*packed.RowStride+(elements-1)*packed.ColStride+1])
	}
	return packed
}

// packB copies a panel of B with at most k.cols columns. Columns of the panel beyond the columns of
// B are not initialized, because their results are not stored.
func (k *kernel) packB(w *worker, packed, b Matrix) {
	switch {
	case b.ColStride == 1 && (k.masked || b.Cols == k.cols):
		w.pack(k.copyRows, packed, b, b.RowStride)
	case b.RowStride == 1:
		rows, cols := b.Rows, b.Cols
		if !k.masked { // full squares only
			rows, cols = rows/k.lanes*k.lanes, cols/k.lanes*k.lanes
		}
		for j := 0; j < cols && rows > 0; j += k.lanes {
			part := b.part(0, j, rows, min(k.lanes, cols-j))
			w.pack(k.transpose, packed.part(0, j, packed.Rows, k.lanes), part, b.ColStride)
		}
		if rows < b.Rows {
			k.packElements(packed.part(rows, 0, b.Rows-rows, cols), b.part(rows, 0, b.Rows-rows, cols))
		}
		if cols < b.Cols {
			k.packElements(packed.part(0, cols, b.Rows, b.Cols-cols), b.part(0, cols, b.Rows, b.Cols-cols))
		}
	default:
		k.packElements(packed, b)
	}
	if w.round {
		roundAll(packed.Data)
	}
}

// pack packs src with the given assembly function. stride is the row stride of src, or the column
// stride if the function transposes.
func (w *worker) pack(with func(*panel), packed, src Matrix, stride int) {
	p := &w.panel // assigned field by field, because a literal would be created elsewhere and copied
	p.src, p.dst = &src.Data[0], &packed.Data[0]
	p.srcStride, p.dstStride = bytes(stride), bytes(packed.RowStride)
	p.terms, p.cols = uintptr(src.Rows), uintptr(src.Cols)
	p.mask0, p.mask1 = masks((src.Cols-1)%32 + 1)
	with(p)
}

// packElements copies the elements of src one by one. Its rows are terms.
func (k *kernel) packElements(packed, src Matrix) {
	for i := 0; i < src.Rows; i += k.pair {
		to := i / k.pair * packed.RowStride
		from := i * src.RowStride
		for j := range src.Cols {
			v := src.Data[from+j*src.ColStride]
			if k.pair == 2 {
				var next float32
				if i+1 < src.Rows {
					next = src.Data[from+src.RowStride+j*src.ColStride]
				}
				v = pairOf(v, next)
			}
			packed.Data[to+j*packed.ColStride] = v
		}
	}
}

// copyRows copies contiguous rows.
func copyRows(dst, src Matrix) {
	for i := range src.Rows {
		copy(dst.Data[i*dst.RowStride:][:src.Cols], src.Data[i*src.RowStride:])
	}
}

// paddedStride returns the stride of packed rows of n elements: whole cache lines plus one, so that
// rows of a power of two do not all map to the same few cache sets.
func paddedStride(n int) int { return (n+line-1)/line*line + line }
