package conformance

import (
	"fmt"
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// product is a matrix multiplication with the layouts of its matrices.
type product struct {
	m, n, k    int
	a, b, c    layout
	accumulate bool
	bias       bool
	storedBias bool // the bias has the type of C
	activation device.Activation
	samePre    bool // Pre is C
	gradient   bool
	sum        bool // ColumnSum
	precision  device.Precision
	of         types
}

// types holds the types of A, B, and C; Pre has the type of C.
type types struct{ a, b, c device.Type }

func checkDense(s *suite) {
	s.run("MatMul", func(s *suite) {
		operands := []struct{ a, b layout }{
			{whole, whole}, {padded, transposed}, {transposed, padded}, {apart, apart}, {spread, whole}, {padded, spread},
		}
		for _, size := range [][3]int{{1, 1, 1}, {1, 37, 5}, {3, 1, 300}, {5, 7, 3}, {17, 33, 9}, {31, 16, 65}, {130, 65, 19}} {
			for _, o := range operands {
				for _, p := range []device.Precision{device.FP32, device.BF16} {
					p := product{m: size[0], n: size[1], k: size[2], a: o.a, b: o.b, c: padded, precision: p}
					s.product(p)
					p.accumulate = true
					s.product(p)
					p.accumulate, p.bias, p.c = false, true, whole
					s.product(p)
					s.productsWithSum(p)
				}
			}
		}
	})
	s.run("LargeMatMul", func(s *suite) {
		for _, p := range []product{
			{a: whole, b: transposed, c: padded, accumulate: true},
			{a: transposed, b: padded, c: whole, bias: true},
			{a: padded, b: whole, c: whole, bias: true, activation: device.GELU, precision: device.BF16},
		} {
			p.m, p.n, p.k = 200, 300, 130
			s.product(p)
			p.m, p.n, p.k = 9, 20, 5003
			s.product(p)
		}
	})
	s.run("Activation", func(s *suite) {
		for _, f := range activations {
			for _, size := range [][3]int{{1, 1, 1}, {3, 5, 7}, {33, 70, 40}, {9, 72, 40}, {8, 72, 40}} {
				s.aligned = size[0] == 8 // a device may then use other code, such as an epilogue
				for _, same := range []bool{false, true} {
					for _, bias := range []bool{false, true} {
						for _, precision := range []device.Precision{device.FP32, device.BF16} {
							s.product(product{m: size[0], n: size[1], k: size[2], b: transposed, bias: bias, activation: f, samePre: same, precision: precision})
						}
					}
				}
			}
		}
	})
	s.run("Gradient", func(s *suite) {
		for _, size := range [][3]int{{1, 1, 1}, {3, 5, 7}, {33, 70, 40}, {9, 72, 40}, {8, 72, 40}, {200, 304, 130}} {
			s.aligned = size[0] == 8
			for _, precision := range []device.Precision{device.FP32, device.BF16} {
				s.product(product{m: size[0], n: size[1], k: size[2], b: transposed, activation: device.GELU, gradient: true, precision: precision})
			}
		}
	})
	s.run("NotFinite", func(s *suite) {
		const m, n, k = 19, 35, 23
		a, b := s.normal(m*k), s.normal(k*n)
		a[4*k+7] = float32(math.NaN()) // all of row 4
		b[9*n+30] = float32(math.Inf(1))
		a[2*k+9] = 0 // zero times infinity
		c := s.emptyMatrix(m, n)
		s.d.MatMul(device.Product{C: c, A: s.inputMatrix(a, m, k, whole), B: s.inputMatrix(b, k, n, whole)})
		for i, v := range s.numbers(c) {
			row, col := i/n, i%n
			nan, inf := row == 4 || row == 2 && col == 30, row != 2 && col == 30
			if v, nan, inf := float64(v), nan, inf && row != 4; math.IsNaN(v) != nan || math.IsInf(v, 0) != inf {
				s.Fatalf("element (%d, %d) is %v with a NaN in row 4 of A and an infinity in column 30 of B", row, col, v)
			}
		}
	})
	s.run("ActivationOfNaN", func(s *suite) {
		const m, n, k = 5, 16, 8
		a := s.normal(m * k)
		a[2*k+3] = float32(math.NaN()) // all of row 2
		for _, f := range activations {
			c, pre := s.emptyMatrix(m, n), s.emptyMatrix(m, n)
			s.d.MatMul(device.Product{C: c, A: s.inputMatrix(a, m, k, whole), B: s.inputMatrix(s.normal(k*n), k, n, whole), Activation: f, Pre: pre})
			for i, v := range s.numbers(c) {
				if math.IsNaN(float64(v)) != (i/n == 2) {
					s.Fatalf("activation %d: element (%d, %d) is %v with a NaN in row 2 of A", f, i/n, i%n, v)
				}
			}
		}
	})
	s.run("ColumnSum", func(s *suite) {
		for _, size := range [][2]int{{1, 1}, {5, 3}, {2, 129}, {300, 17}, {1030, 65}} {
			for _, l := range []layout{whole, padded} {
				s.columnSum(size[0], size[1], l)
			}
		}
	})
}

func (s *suite) product(p product) {
	s.Helper()
	what := fmt.Sprintf("%+v", p)
	a, b, c := roundTo(p.of.a, s.normal(p.m*p.k)), roundTo(p.of.b, s.normal(p.k*p.n)), nans(p.m*p.n)
	if p.accumulate {
		c = roundTo(p.of.c, s.normal(p.m*p.n))
	}
	call := device.Product{
		C: s.matrixOf(p.of.c, c, p.m, p.n, p.c, true), A: s.matrixOf(p.of.a, a, p.m, p.k, p.a, false), B: s.matrixOf(p.of.b, b, p.k, p.n, p.b, false),
		Accumulate: p.accumulate, Activation: p.activation, Gradient: p.gradient, Precision: p.precision,
	}
	var bias []float32
	if p.bias {
		bias = s.normal(p.n)
		call.Bias = s.input(bias)
		if p.storedBias {
			call.Bias = s.matrixOf(p.of.c, bias, 1, p.n, whole, false).Data
		}
	}
	if p.activation != device.Identity {
		call.Pre = call.C
		if !p.samePre {
			call.Pre = s.matrixOf(p.of.c, nans(p.m*p.n), p.m, p.n, whole, true)
		}
	}
	var sums []float32
	if p.sum {
		sums = nans(p.n)
		if p.accumulate {
			sums = s.normal(p.n)
		}
		call.ColumnSum = s.result(sums)
	}
	var pre []float32
	if p.gradient {
		pre = roundTo(p.of.c, s.normal(p.m*p.n))
		call.Pre = s.matrixOf(p.of.c, pre, p.m, p.n, whole, false)
	}
	s.d.MatMul(call)

	start := make([]real, p.m*p.n)
	for i := range start {
		if p.accumulate {
			start[i] = exact(c[i])
		}
		if p.bias {
			start[i] = exact(bias[i%p.n]).in(p.of.c)
		}
	}
	if p.sum {
		s.sums(what, call, b, sums)
	}
	want := multiply(p, start, a, b)
	if p.gradient {
		for i := range want {
			want[i] = want[i].in(p.of.c).times(derivative(p.activation, exact(pre[i]), exact(0))).in(p.of.c)
		}
		s.close(what, s.numbers(call.C), want)
		return
	}
	for i := range want {
		want[i] = want[i].in(p.of.c)
	}
	if p.activation != device.Identity && !p.samePre {
		s.close(what+" Pre", s.numbers(call.Pre), want)
	}
	for i := range want {
		want[i] = activate(p.activation, want[i])
		if p.activation != device.Identity {
			want[i] = want[i].in(p.of.c)
		}
	}
	s.close(what, s.numbers(call.C), want)
}

// productsWithSum calls product with a ColumnSum, if the layout of B allows it.
func (s *suite) productsWithSum(p product) {
	s.Helper()
	if p.b.transposed || p.b.step != 0 {
		return
	}
	p.bias, p.sum = false, true
	for _, p.accumulate = range []bool{false, true} {
		s.product(p)
	}
}

// sums checks the ColumnSum of a call, whose B contains b. start is its previous value.
func (s *suite) sums(what string, call device.Product, b, start []float32) {
	s.Helper()
	want := make([]real, len(start))
	for j := range want {
		var total sum
		if call.Accumulate {
			total.add(exact(start[j]))
		}
		for l := range call.B.Rows {
			total.add(exact(b[l*len(start)+j]))
		}
		want[j] = total.real()
	}
	got := s.floats(call.ColumnSum)
	s.close(what+" ColumnSum", got, want)
	if call.B.Data.Type() == device.Float32 {
		separate := s.result(start)
		s.d.ColumnSum(separate, call.B, call.Accumulate)
		s.same(what+" ColumnSum", got, s.floats(separate))
	}
}

// multiply returns A·B + start.
func multiply(p product, start []real, a, b []float32) []real {
	if p.precision == device.BF16 {
		a, b = allBFloat16(a), allBFloat16(b)
	}
	out := make([]real, p.m*p.n)
	for i := range p.m {
		for j := range p.n {
			var total sum
			total.add(start[i*p.n+j])
			for l := range p.k {
				total.add(exact(a[i*p.k+l]).times(exact(b[l*p.n+j])))
			}
			out[i*p.n+j] = total.real()
		}
	}
	return out
}

func allBFloat16(v []float32) []float32 {
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = toBFloat16(x)
	}
	return out
}

func (s *suite) columnSum(rows, cols int, l layout) {
	s.Helper()
	x, start := roundTo(s.stored, s.normal(rows*cols)), s.normal(cols)
	m := s.matrixOf(s.stored, x, rows, cols, l, false)
	written, added := s.empty(cols), s.result(start)
	s.d.ColumnSum(written, m, false)
	s.d.ColumnSum(added, m, true)

	inOrder, want, more := make([]float32, cols), make([]real, cols), make([]real, cols)
	for j := range cols {
		var total sum
		for i := range rows {
			inOrder[j] += x[i*cols+j]
			total.add(exact(x[i*cols+j]))
		}
		want[j] = total.real()
		total.add(exact(start[j]))
		more[j] = total.real()
	}
	what := fmt.Sprintf("sum of %d rows of %d, %+v", rows, cols, l)
	if s.stored == device.Float32 {
		s.same(what, s.floats(written), inOrder)
	} else {
		s.close(what, s.floats(written), want)
	}
	s.close(what+", added", s.floats(added), more)
}
