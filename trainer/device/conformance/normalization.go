package conformance

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

func checkNormalization(s *suite) {
	for _, size := range [][2]int{{1, 1}, {3, 2}, {5, 7}, {9, 64}, {33, 257}, {130, 768}, {3, 1024}, {2, 1608}} {
		s.run(fmt.Sprintf("%dx%d", size[0], size[1]), func(s *suite) { s.layerNorm(size[0], size[1]) })
	}
}

func (s *suite) layerNorm(rows, cols int) {
	x, w, b := s.normal(rows*cols), s.normal(cols), s.normal(cols)
	for i := range x {
		switch i / cols % 4 {
		case 1:
			x[i] += 100 // E[x²]-E[x]² would lose the variance
		case 2:
			x[i] *= 2e-3 // the variance is smaller than epsilon
		}
	}
	y, mean, rstd := s.storedMatrix(nans(rows*cols), rows, cols, true), s.empty(rows), s.empty(rows)
	in, weight := s.inputMatrix(x, rows, cols, whole), s.input(w)
	s.d.LayerNorm(y, mean, rstd, in, weight, s.input(b))

	wantY, means, rstds := make([]real, rows*cols), make([]real, rows), make([]real, rows)
	for i := range rows {
		row := x[i*cols:][:cols]
		means[i], rstds[i] = moments(row)
		for j, v := range row {
			wantY[i*cols+j] = exact(v).minus(means[i]).times(rstds[i]).times(exact(w[j])).plus(exact(b[j])).in(s.stored)
		}
	}
	s.close("mean", s.floats(mean), means)
	s.close("rstd", s.floats(rstd), rstds)
	s.close("y", s.numbers(y), wantY)

	s.addLayerNorm(x, w, b, rows, cols)

	// Gradients use the stored mean and rstd.
	g := normGrad{rows, cols, x, w, roundTo(s.stored, s.normal(rows*cols)), round(means), round(rstds)}
	mean, rstd = s.input(g.mean), s.input(g.rstd)
	dy := s.storedMatrix(g.dy, rows, cols, false)
	start, startW, startB := s.normal(rows*cols), s.normal(cols), s.normal(cols)
	zero := make([]float32, rows*cols)

	alone := device.LayerNormGradients{DX: s.emptyMatrix(rows, cols), DW: s.empty(cols), DB: s.empty(cols),
		DY: dy, X: in, W: weight, Mean: mean, RStd: rstd}
	added := alone
	added.DX, added.AddX, added.Copy = s.resultMatrix(start, rows, cols, whole), true, s.matrixOf(device.BFloat16, nans(rows*cols), rows, cols, whole, true).Data
	added.DW, added.DB, added.Accumulate = s.result(startW), s.result(startB), true
	s.d.LayerNormBackward(alone)
	s.d.LayerNormBackward(added)
	s.close("dx", s.numbers(alone.DX), g.input(zero))
	s.close("dx, added", s.numbers(added.DX), g.input(start))
	s.same("the copy of dx", s.numbers(device.Rows(added.Copy, rows, cols)), roundTo(device.BFloat16, s.numbers(added.DX)))
	wantW, wantB := g.params(zero[:cols], zero[:cols])
	s.close("dw", s.floats(alone.DW), wantW)
	s.close("db", s.floats(alone.DB), wantB)
	wantW, wantB = g.params(startW, startB)
	s.close("dw, added", s.floats(added.DW), wantW)
	s.close("db, added", s.floats(added.DB), wantB)
	if s.stored == device.Float32 {
		same := alone
		same.DX, same.DW, same.DB = s.resultMatrix(g.dy, rows, cols, whole), s.empty(cols), s.empty(cols)
		same.DY = same.DX
		s.d.LayerNormBackward(same)
		s.same("dx in place of dy", s.numbers(same.DX), s.numbers(alone.DX))
		s.same("dw with dx in place of dy", s.floats(same.DW), s.floats(alone.DW))
		s.same("db with dx in place of dy", s.floats(same.DB), s.floats(alone.DB))
	}
}

// addLayerNorm compares the result with the bits of an Add followed by a LayerNorm.
func (s *suite) addLayerNorm(x, w, b []float32, rows, cols int) {
	s.Helper()
	right, added := roundTo(s.stored, s.normal(rows*cols)), make([]float32, rows*cols)
	for i := range added {
		added[i] = x[i] + right[i]
	}
	weight, shift, left := s.input(w), s.input(b), s.inputMatrix(x, rows, cols, whole)
	y, mean, rstd := s.storedMatrix(nans(rows*cols), rows, cols, true), s.empty(rows), s.empty(rows)
	s.d.LayerNorm(y, mean, rstd, s.inputMatrix(added, rows, cols, whole), weight, shift)
	inPlace := s.storedMatrix(right, rows, cols, true)
	for to, from := range map[device.Matrix]device.Matrix{
		s.storedMatrix(nans(rows*cols), rows, cols, true): s.storedMatrix(right, rows, cols, false),
		inPlace: inPlace,
	} {
		sum, m, r := s.emptyMatrix(rows, cols), s.empty(rows), s.empty(rows)
		s.d.AddLayerNorm(to, sum, m, r, left, from, weight, shift)
		s.same("sum", s.numbers(sum), added)
		s.same("y of a sum", s.numbers(to), s.numbers(y))
		s.same("mean of a sum", s.floats(m), s.floats(mean))
		s.same("rstd of a sum", s.floats(r), s.floats(rstd))
	}
}

// moments returns the mean and 1/sqrt(variance+eps) of a row.
func moments(row []float32) (mean, rstd real) {
	n := exact(float32(len(row)))
	var total, squares sum
	for _, v := range row {
		total.add(exact(v))
	}
	mean = total.real().div(n)
	for _, v := range row {
		d := exact(v).minus(mean)
		squares.add(d.times(d))
	}
	return mean, exact(1).div(squares.real().div(n).plus(rounded(device.LayerNormEps, 0)).sqrt())
}

// round rounds values to float32.
func round(v []real) []float32 {
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = float32(x.v)
	}
	return out
}

// normGrad is the backward pass of a layer normalization.
type normGrad struct {
	rows, cols           int
	x, w, dy, mean, rstd []float32
}

// normal returns a normalized element of x.
func (g *normGrad) normal(i, j int) real {
	return exact(g.x[i*g.cols+j]).minus(exact(g.mean[i])).times(exact(g.rstd[i]))
}

// input returns start + rstd*(d - mean(d) - x̂*mean(d*x̂)) with d = dy*w.
func (g *normGrad) input(start []float32) []real {
	out := make([]real, len(start))
	n := exact(float32(g.cols))
	for i := range g.rows {
		var plain, along sum
		for j := range g.cols {
			d := exact(g.dy[i*g.cols+j]).times(exact(g.w[j]))
			plain.add(d)
			along.add(d.times(g.normal(i, j)))
		}
		for j := range g.cols {
			var total sum
			total.add(exact(g.dy[i*g.cols+j]).times(exact(g.w[j])))
			total.add(real{}.minus(plain.real().div(n)))
			total.add(real{}.minus(g.normal(i, j).times(along.real().div(n))))
			out[i*g.cols+j] = exact(start[i*g.cols+j]).plus(total.real().times(exact(g.rstd[i])))
		}
	}
	return out
}

func (g *normGrad) params(startW, startB []float32) (dw, db []real) {
	for j := range g.cols {
		var w, b sum
		w.add(exact(startW[j]))
		b.add(exact(startB[j]))
		for i := range g.rows {
			dy := exact(g.dy[i*g.cols+j])
			w.add(dy.times(g.normal(i, j)))
			b.add(dy)
		}
		dw, db = append(dw, w.real()), append(db, b.real())
	}
	return dw, db
}
