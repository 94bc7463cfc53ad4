package conformance

import (
	"fmt"
	"math"
	"slices"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// doubles returns the elements of a Float64 tensor, whose memory it reads as Float32.
func (s *suite) doubles(t device.Tensor) []float64 {
	halves := make([]float32, 2*t.Len())
	s.d.Read(halves, device.At(device.Float32, t.Base(), len(halves)))
	out := make([]float64, t.Len())
	for i := range out {
		out[i] = math.Float64frombits(uint64(math.Float32bits(halves[2*i+1]))<<32 | uint64(math.Float32bits(halves[2*i])))
	}
	return out
}

// writeDoubles returns a Float64 tensor with the given elements, which must be exact in float32.
func (s *suite) writeDoubles(v ...float32) device.Tensor {
	t := s.d.Alloc(device.Float64, len(v))
	s.d.Cast(t, s.input(v))
	return t
}

func checkSteps(s *suite) {
	s.run("CastToFloat64", func(s *suite) {
		x := append(s.normal(600), float32(math.Inf(1)), -0x1p-149, math.MaxFloat32)
		for i, v := range s.doubles(s.writeDoubles(x...)) {
			if v != float64(x[i]) {
				s.Errorf("element %d: %v is %v", i, x[i], v)
			}
		}
	})
	s.run("ChunkSquares", func(s *suite) {
		for _, c := range []struct{ n, count, pitch int }{{1, 1, 1}, {300, 3, 1}, {70001, 2, 4}, {16, 65, 2}} {
			x := s.input(s.normal(c.n * c.count))
			want := make([]float64, (c.count-1)*c.pitch+1)
			for i := range want {
				want[i] = -1 // between the sums
			}
			sums := s.d.Alloc(device.Float64, len(want))
			s.d.Cast(sums, s.input(slices.Repeat([]float32{-1}, len(want))))
			for _, add := range []bool{false, true} {
				for i := range c.count {
					sum := s.d.SumSquares(x.Slice(i*c.n, (i+1)*c.n))
					if add {
						sum += want[i*c.pitch]
					}
					want[i*c.pitch] = sum
				}
				s.d.ChunkSquares(sums, c.pitch, x, c.count, add)
				if got := s.doubles(sums); !slices.Equal(got, want) {
					s.Errorf("%+v, add %t: %v, want %v", c, add, got, want)
				}
			}
		}
	})
	s.run("AddLoss", func(s *suite) {
		v, loss := s.d.NewStepDecision(1), s.empty(1)
		for _, n := range []int{1, 255, 1792, 1793, 2048, 5000} {
			rows, sum := make([]float32, n), 0
			for i := range rows {
				rows[i] = float32(i*i%11) + 1 // every sum of integers is exact
				sum += i*i%11 + 1
			}
			v.AddLoss(loss, s.input(rows), 8, 0.5)
			s.same(fmt.Sprintf("loss of %d rows", n), s.floats(loss), []float32{float32(sum) / 16})
			v.Reduce(s.writeDoubles(0, 0)) // ends the step
		}
	})
	s.run("StepDecision", func(s *suite) {
		inf, nan := float32(math.Inf(1)), float32(math.NaN())
		v, result := s.d.NewStepDecision(3), s.d.NewReading()
		loss, rows := s.empty(1), s.input([]float32{1, 2, 6})
		value := s.result([]float32{1})
		rounded := s.matrixOf(device.BFloat16, []float32{1}, 1, 1, whole, true).Data
		want := float32(1) // value
		for i, c := range []struct {
			records []float32
			updated bool
			sums    []float32 // norm and scalars
		}{
			{[]float32{4, 0.5, 0, 1, 5, 0.25, 1, 0}, true, []float32{3, 0.75, 1, 1}},
			{[]float32{nan, 0.5, 0, 1, 5, 0.25, 1, 0}, false, []float32{nan, 0.75, 1, 1}},
			{[]float32{inf, 1, 0, 0}, false, []float32{inf, 1, 0, 0}},
			{[]float32{9, 1, 0, 0, 0, -inf, 2, 0}, false, []float32{3, -inf, 2, 0}},
			{[]float32{16, 1, 0, inf}, true, []float32{4, 1, 0, inf}},
		} {
			what := fmt.Sprintf("step %d", i)
			v.AddLoss(loss, rows, 3, 0.5)
			v.AddLoss(loss, rows, 2, 0.25)
			s.same(what+": loss", s.floats(loss), []float32{0.5*3 + 0.25*4.5})
			v.AddLoss(loss, s.input([]float32{nan}), 1, 0) // does not count
			s.same(what+": loss with padding", s.floats(loss), []float32{0.5*3 + 0.25*4.5})
			v.Reduce(s.writeDoubles(c.records...))
			v.Decide(0, []device.GroupFactors{{Factors: device.Factors{Rate: -0.5}}})
			v.Update(device.RuleSGD, device.Arrays{Value: value, Grad: s.input([]float32{0.5}), Rounded: rounded}, 0)
			flag := float32(0)
			if c.updated {
				flag, want = 1, want-0.25
			}
			result.Begin(v.Result())
			s.same(what+": result", result.Floats(), append([]float32{flag}, c.sums...))
			s.same(what+": value", s.floats(value), []float32{want})
			s.same(what+": rounded value", s.floats(rounded), []float32{want})
		}
	})
}
