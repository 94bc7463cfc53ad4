package conformance

import (
	"fmt"
	"math"
)

func checkLosses(s *suite) {
	s.run("CrossEntropy", func(s *suite) {
		for _, size := range [][2]int{{1, 1}, {4, 2}, {3, 10}, {65, 257}, {200, 33}, {9, 48}, {3, 8264}, {2, 50257}} {
			for _, scale := range []float32{0, 1, 0.125 / 3} {
				for _, magnitude := range []float32{1, 30, 1e4, 1e30} { // exp of 100 overflows float32
					s.crossEntropy(size[0], size[1], magnitude, 0, scale)
				}
				s.crossEntropy(size[0], size[1], 1, 1e4, scale) // only differences matter
			}
		}
	})
	s.run("SquaredError", func(s *suite) {
		for _, size := range [][2]int{{1, 1}, {5, 3}, {64, 10}, {3, 1000}} {
			for _, scale := range []float32{0, 1, 0.125 / 3} {
				s.squaredError(size[0], size[1], scale)
			}
		}
	})
	s.run("NotFinite", func(s *suite) {
		for _, scale := range []float32{0, 1} {
			const rows, cols = 5, 37
			x := s.normal(rows * cols)
			x[1*cols+20], x[3*cols] = float32(math.NaN()), float32(math.NaN())
			label := []int32{0, 1, 36, 0, 20}
			entropy, square := s.empty(rows), s.empty(rows)
			s.d.CrossEntropy(entropy, s.resultMatrix(x, rows, cols, whole), s.tokens(label), scale)
			s.d.SquaredError(square, s.resultMatrix(x, rows, cols, whole), s.input(s.normal(rows*cols)), scale)
			for i := range rows {
				for what, v := range map[string]float32{"cross entropy": s.floats(entropy)[i], "squared error": s.floats(square)[i]} {
					if nan(v) != (i == 1 || i == 3) {
						s.Errorf("%s of row %d is %v, and rows 1 and 3 have a NaN", what, i, v)
					}
				}
			}
		}
	})
	s.run("ArgMax", (*suite).argMax)
	s.run("CountEqual", func(s *suite) {
		for _, n := range lengths {
			a, b := s.upTo(n, 3), s.upTo(n, 3)
			want := 0
			for i := range a {
				if a[i] == b[i] {
					want++
				}
			}
			if got := s.d.CountEqual(s.tokens(a), s.tokens(b)); got != want {
				s.Errorf("%d of %d are equal, want %d", got, n, want)
			}
		}
	})
}

// argMax tests values of which many are equal.
func (s *suite) argMax() {
	for _, size := range [][2]int{{1, 1}, {7, 3}, {65, 100}, {300, 17}, {3, 50257}} {
		rows, cols := size[0], size[1]
		x, want := s.normal(rows*cols), make([]int32, rows)
		for i := range x {
			switch x[i] = float32(math.Round(float64(x[i]))); {
			case i/cols%3 == 1:
				x[i] = float32(math.Inf(-1)) // all are equal
			case i%50 == 49:
				x[i] = float32(math.Inf(1))
			}
		}
		for i := range want {
			for j, v := range x[i*cols:][:cols] {
				if v > x[i*cols+int(want[i])] {
					want[i] = int32(j)
				}
			}
		}
		chosen := s.emptyInts(rows)
		s.d.ArgMax(chosen, s.storedMatrix(x, rows, cols, false))
		s.sameInts(fmt.Sprintf("largest of %dx%d", rows, cols), s.ints(chosen), want)
	}
}

func (s *suite) crossEntropy(rows, cols int, magnitude, offset, scale float32) {
	s.Helper()
	what := fmt.Sprintf("%dx%d logits times %v from %v, scale %v", rows, cols, magnitude, offset, scale)
	x, label := s.normal(rows*cols), s.upTo(rows, cols)
	for i := range x {
		x[i] = offset + x[i]*magnitude
	}
	x = roundTo(s.stored, x)
	losses, logits := s.empty(rows), s.storedMatrix(x, rows, cols, true)
	s.d.CrossEntropy(losses, logits, s.tokens(label), scale)

	want, grad := make([]real, rows), make([]real, rows*cols)
	for i := range rows {
		row := x[i*cols:][:cols]
		top := row[0]
		for _, v := range row {
			top = max(top, v)
		}
		var total sum
		for _, v := range row {
			total.add(exact(v).minus(exact(top)).exp())
		}
		want[i] = total.real().log().plus(exact(top).minus(exact(row[label[i]])))
		for j, v := range row {
			p := exact(v).minus(exact(top)).exp().div(total.real())
			if j == int(label[i]) {
				p = p.minus(exact(1))
			}
			grad[i*cols+j] = p.times(exact(scale)).in(s.stored)
		}
	}
	s.close(what+": losses", s.floats(losses), want)
	if scale == 0 {
		s.same(what+": logits", s.numbers(logits), x)
		return
	}
	s.close(what+": gradient", s.numbers(logits), grad)
}

func (s *suite) squaredError(rows, cols int, scale float32) {
	s.Helper()
	what := fmt.Sprintf("%dx%d numbers, scale %v", rows, cols, scale)
	x, targets := s.normal(rows*cols), s.normal(rows*cols)
	losses, m := s.empty(rows), s.resultMatrix(x, rows, cols, whole)
	s.d.SquaredError(losses, m, s.input(targets), scale)

	want, grad := make([]sum, rows), make([]real, rows*cols)
	for i := range x {
		d := exact(x[i]).minus(exact(targets[i]))
		want[i/cols].add(d.times(d))
		grad[i] = d.times(exact(2)).times(exact(scale))
	}
	s.close(what+": losses", s.floats(losses), totals(want))
	if scale == 0 {
		s.same(what+": x", s.numbers(m), x)
		return
	}
	s.close(what+": gradient", s.numbers(m), grad)
}
