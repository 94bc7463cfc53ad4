package nn

// The three products of a linear layer, in portable Go. All of them are made of
// dot products over rows that lie contiguous in memory, six at a time (dot3x2);
// columns are gathered into rows first. The work goes pair of columns by pair
// of columns of the result, so that what is gathered stays in the first-level
// cache while all rows pass by it.

// multiplyNT writes c = a·bᵀ + bias: a is rows x k, b is cols x k, c is rows x
// cols, and bias has cols elements.
func multiplyNT(c, a, b, bias []float32, rows, cols, k int) {
	for j := 0; j < cols; j += 2 {
		j1 := min(j+1, cols-1)
		pair := columnPair{b[j*k : (j+1)*k], b[j1*k : (j1+1)*k], bias[j], bias[j1]}
		pair.multiply(c, a, rows, cols, j)
	}
}

// multiplyNN writes c = a·b: a is rows x k, b is k x cols, c is rows x cols.
// Panels is room for 2*k elements.
func multiplyNN(c, a, b, panels []float32, rows, cols, k int) {
	p0, p1 := panels[:k], panels[k:2*k]
	for j := 0; j < cols; j += 2 {
		j1 := min(j+1, cols-1)
		for i := range p0 {
			p0[i], p1[i] = b[i*cols+j], b[i*cols+j1]
		}
		pair := columnPair{p0, p1, 0, 0}
		pair.multiply(c, a, rows, cols, j)
	}
}

// columnPair is two columns of a right-hand side, and what to add to their
// products. For a last column without a partner they are the same.
type columnPair struct {
	b0, b1       []float32
	bias0, bias1 float32
}

// multiply writes columns j and j+1 of c, which is rows x cols. Where three rows
// at a time do not go around, the last row is computed again in place of those
// beyond it.
func (p columnPair) multiply(c, a []float32, rows, cols, j int) {
	k := len(p.b0)
	both := j+1 < cols
	for i := 0; i < rows; i += 3 {
		i1, i2 := min(i+1, rows-1), min(i+2, rows-1)
		s00, s01, s10, s11, s20, s21 := dot3x2(a[i*k:(i+1)*k], a[i1*k:(i1+1)*k], a[i2*k:(i2+1)*k], p.b0, p.b1)
		c[i*cols+j] = s00 + p.bias0
		c[i1*cols+j] = s10 + p.bias0
		c[i2*cols+j] = s20 + p.bias0
		if both {
			c[i*cols+j+1] = s01 + p.bias1
			c[i1*cols+j+1] = s11 + p.bias1
			c[i2*cols+j+1] = s21 + p.bias1
		}
	}
}

// dot3x2 returns the dot products of three rows with two others of the same
// length. Six sums are what hides the latency of an addition and, with the
// products, just fits into the 15 registers that Go uses: with eight, one is
// kept in memory, and it is twice as slow. The conversions forbid a fused
// multiply-add, which Go would use on some processors and not on others.
func dot3x2(a0, a1, a2, b0, b1 []float32) (s00, s01, s10, s11, s20, s21 float32) {
	a1 = a1[:len(a0)]
	a2 = a2[:len(a0)]
	b0 = b0[:len(a0)]
	b1 = b1[:len(a0)]
	for k := range a0 {
		v, w := b0[k], b1[k]
		a := a0[k]
		s00 += float32(a * v)
		s01 += float32(a * w)
		a = a1[k]
		s10 += float32(a * v)
		s11 += float32(a * w)
		a = a2[k]
		s20 += float32(a * v)
		s21 += float32(a * w)
	}
	return s00, s01, s10, s11, s20, s21
}

// transpose writes the transpose of a, which is rows x cols, to dst.
func transpose(dst, a []float32, rows, cols int) {
	for i := range rows {
		for j, v := range a[i*cols : (i+1)*cols] {
			dst[j*rows+i] = v
		}
	}
}
