package gemm

// pack copies rows p to p+n of the cols columns of B from j on to w.room, as rows
// of k.cols elements. What is beyond the last column, up to a whole register, is
// zero.
func (k *kernel) pack(w *worker, p, n, j, cols int) {
	whole := cols / k.lanes * k.lanes
	edge := (cols + k.lanes - 1) / k.lanes * k.lanes
	b := w.b
	switch {
	case b.ColStride == 1 && (k.masked || whole == cols && cols == k.cols):
		w.panel = panel{
			src: at(b, p, j), dst: &w.room[0],
			srcStride: bytes(b.RowStride), k: uintptr(n),
			mask0: w.tile.mask0, mask1: w.tile.mask1,
		}
		k.copyRows(&w.panel)
	case b.RowStride == 1 && n >= k.lanes:
		square := n / k.lanes * k.lanes
		for c := 0; c < whole; c += k.lanes {
			w.panel = panel{
				src: at(b, p, j+c), dst: &w.room[c],
				srcStride: bytes(b.ColStride), k: uintptr(square),
			}
			k.transpose(&w.panel)
		}
		k.packElements(w, p, square, n, j, 0, whole, whole)
		k.packElements(w, p, 0, n, j, whole, cols, edge)
	default:
		k.packElements(w, p, 0, n, j, 0, cols, edge)
	}
}

// packElements copies the rows from first to before end of the columns from left
// to before right, and zeros from there to before edge, one by one.
func (k *kernel) packElements(w *worker, p, first, end, j, left, right, edge int) {
	if left == edge {
		return
	}
	b := w.b
	for i := first; i < end; i++ {
		row := w.room[i*k.cols:][:k.cols]
		at := (p+i)*b.RowStride + j*b.ColStride
		for c := left; c < right; c++ {
			row[c] = b.Data[at+c*b.ColStride]
		}
		clear(row[right:edge])
	}
}
