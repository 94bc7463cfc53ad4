package gemm

import "github.com/ddpbatch/ddpbatch/trainer/fma"

// portableRows is the number of rows of A that the portable code gathers if they are not
// contiguous: 48*512*4 bytes = 96 KiB.
const portableRows = 48

// multiplyPortable computes the worker's part of the product in plain Go. It is the reference for
// the other kernels.
//
// It computes dot products of three rows of A with two columns of B. It gathers them if they are
// not contiguous: columns in the first elements of the buffer for B, rows in the buffer for A.
func multiplyPortable(w *worker) {
	c, a, b := w.c, w.a, w.b
	for p := 0; p < a.Cols; p += depth {
		n := min(depth, a.Cols-p)
		start := w.start
		if p > 0 {
			start = c
		}
		for first := 0; first < c.Rows; first += portableRows {
			end := min(first+portableRows, c.Rows)
			rows := a.Data[first*a.RowStride+p*a.ColStride:]
			rowStride := a.RowStride
			if a.ColStride != 1 || w.round {
				gathered := w.aBuffer
				for i := range end - first {
					w.gather(gathered[i*depth:][:n], rows[i*a.RowStride:], a.ColStride)
				}
				rows, rowStride = gathered, depth
			}
			for j := 0; j < c.Cols; j += 2 {
				j1 := min(j+1, c.Cols-1)
				b0, b1 := w.bBuffer[:n], w.bBuffer[depth:][:n]
				w.gather(b0, b.Data[p*b.RowStride+j*b.ColStride:], b.RowStride)
				w.gather(b1, b.Data[p*b.RowStride+j1*b.ColStride:], b.RowStride)
				for i := first; i < end; i += 3 {
					// If the number of rows or columns is not a multiple of three or two, the last
					// one is computed again, from the same start value.
					i1, i2 := min(i+1, end-1), min(i+2, end-1)
					c0, c1, c2 := c.Data[i*c.RowStride:], c.Data[i1*c.RowStride:], c.Data[i2*c.RowStride:]
					var s sums
					if start.Data != nil {
						s0, s1, s2 := start.Data[i*start.RowStride:], start.Data[i1*start.RowStride:], start.Data[i2*start.RowStride:]
						s = sums{s0[j], s0[j1], s1[j], s1[j1], s2[j], s2[j1]}
					}
					s.add(rows[(i-first)*rowStride:][:n], rows[(i1-first)*rowStride:][:n], rows[(i2-first)*rowStride:][:n], b0, b1)
					c0[j], c0[j1], c1[j], c1[j1], c2[j], c2[j1] = s.s00, s.s01, s.s10, s.s11, s.s20, s.s21
				}
			}
		}
	}
}

// gather copies strided elements, and rounds them if the worker rounds.
func (w *worker) gather(dst, src []float32, stride int) {
	for i := range dst {
		dst[i] = src[i*stride]
	}
	if w.round {
		roundAll(dst)
	}
}

// sums holds the sums of three rows and two columns. Six of them hide the latency of one and, with
// the factors, just fit the registers that Go uses.
type sums struct{ s00, s01, s10, s11, s20, s21 float32 }

// add adds the products of rows and columns, which all have the same length.
func (s *sums) add(a0, a1, a2, b0, b1 []float32) {
	a1, a2, b0, b1 = a1[:len(a0)], a2[:len(a0)], b0[:len(a0)], b1[:len(a0)]
	s00, s01, s10, s11, s20, s21 := s.s00, s.s01, s.s10, s.s11, s.s20, s.s21
	for k := range a0 {
		v, w := b0[k], b1[k]
		a := a0[k]
		s00 = fma.Float32(a, v, s00)
		s01 = fma.Float32(a, w, s01)
		a = a1[k]
		s10 = fma.Float32(a, v, s10)
		s11 = fma.Float32(a, w, s11)
		a = a2[k]
		s20 = fma.Float32(a, v, s20)
		s21 = fma.Float32(a, w, s21)
	}
	*s = sums{s00, s01, s10, s11, s20, s21}
}
