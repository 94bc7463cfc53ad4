package conformance

import (
	"fmt"
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

func checkDropout(s *suite) {
	s.run("None", func(s *suite) {
		for _, n := range lengths {
			x, y := s.normal(n), s.empty(n)
			s.d.Dropout(y, s.input(x), device.Dropout{Key: 5, First: 3, Stride: 2, PerSample: n})
			s.same("without dropout", s.floats(y), x)
		}
	})
	s.run("Share", func(s *suite) {
		const n = 200_000
		for _, p := range []float32{0.001, 0.1, 0.5, 0.9} {
			mask := s.dropoutMask(device.Dropout{P: p, Key: 77, Stride: 1, PerSample: n}, 1)
			s.share(fmt.Sprintf("dropped with probability %v", p), count(mask, false), n, float64(p))
			// Adjacent elements are independent.
			pairs := 0
			for i := range n - 1 {
				if !mask[i] && !mask[i+1] {
					pairs++
				}
			}
			s.share(fmt.Sprintf("dropped in pairs with probability %v squared", p), pairs, n-1, float64(p)*float64(p))
		}
	})
	s.run("Scale", func(s *suite) {
		for _, n := range lengths {
			d := device.Dropout{P: 0.3, Key: 9, First: 4, Stride: 3, PerSample: n}
			mask := s.dropoutMask(d, 1)
			x := s.normal(n)
			want := make([]real, n)
			for i := range x {
				if mask[i] {
					want[i] = exact(x[i]).times(scaleOf(d))
				} else if i%2 == 0 {
					x[i] = float32(math.NaN()) // a dropped element is 0 for any input
				}
			}
			y, same := s.empty(n), s.result(x)
			s.d.Dropout(y, s.input(x), d)
			s.d.Dropout(same, same, d)
			s.close("dropout", s.floats(y), want)
			s.same("dropout in place", s.floats(same), s.floats(y))
		}
	})
	s.run("Division", func(s *suite) {
		const samples, perSample = 24, 37
		d := device.Dropout{P: 0.4, Key: 1 << 60, Stride: 1, PerSample: perSample}
		batch := s.dropoutMask(d, samples)
		for _, ranks := range []int{2, 3, 8} {
			for rank := range ranks {
				d.First, d.Stride = rank, ranks
				s.sameSamples(fmt.Sprintf("every %d. sample from %d", ranks, rank), s.dropoutMask(d, samples/ranks), batch, d)
				d.First, d.Stride = rank*samples/ranks, 1
				s.sameSamples(fmt.Sprintf("%d samples from %d", samples/ranks, d.First), s.dropoutMask(d, samples/ranks), batch, d)
			}
		}
		// A sample of one element has its own position.
		d.First, d.Stride, d.PerSample = 100, 1, 1
		s.sameSamples("samples of one element", s.dropoutMask(d, 500), batch, d)
	})
	s.run("Independence", func(s *suite) {
		const n, p = 100_000, 0.5
		d := device.Dropout{P: p, Stride: 1, PerSample: 1}
		first := s.dropoutMask(d, n)
		for _, other := range []struct {
			what string
			d    device.Dropout
		}{
			{"the next key", device.Dropout{P: p, Key: 1, Stride: 1, PerSample: 1}},
			{"a key that differs in its upper half", device.Dropout{P: p, Key: 1 << 40, Stride: 1, PerSample: 1}},
			{"positions after the 2^32nd", device.Dropout{P: p, First: 1 << 32, Stride: 1, PerSample: 1}},
			{"positions after the 2^33rd", device.Dropout{P: p, First: 1 << 20, Stride: 1 << 13, PerSample: 1 << 13}},
		} {
			again := s.dropoutMask(other.d, n/other.d.PerSample)
			equal := 0
			for i, k := range again {
				if k == first[i] {
					equal++
				}
			}
			s.share("equal choices of "+other.what, equal, len(again), 0.5)
		}
	})
}

// scaleOf returns the scale of kept elements.
func scaleOf(d device.Dropout) real { return exact(1).div(exact(1).minus(exact(d.P))) }

// dropoutMask returns which elements of a number of samples dropout keeps.
func (s *suite) dropoutMask(d device.Dropout, samples int) []bool {
	n := samples * d.PerSample
	y := s.empty(n)
	s.d.Dropout(y, s.input(filled(n, 1)), d)
	mask := make([]bool, n)
	for i, v := range s.floats(y) {
		mask[i] = v != 0
	}
	return mask
}

func count(v []bool, want bool) int {
	n := 0
	for _, x := range v {
		if x == want {
			n++
		}
	}
	return n
}

// share fails the test if a count is more than five standard deviations of the binomial
// distribution from its mean.
func (s *suite) share(what string, got, n int, p float64) {
	s.Helper()
	mean, deviation := float64(n)*p, math.Sqrt(float64(n)*p*(1-p))
	if math.Abs(float64(got)-mean) > 5*deviation {
		s.Errorf("%s: %d of %d, want %.0f ± %.0f", what, got, n, mean, 5*deviation)
	}
}

// sameSamples fails the test unless local samples equal the samples of the batch that d selects.
func (s *suite) sameSamples(what string, local, batch []bool, d device.Dropout) {
	s.Helper()
	for i, k := range local {
		at := (d.First+i/d.PerSample*d.Stride)*d.PerSample + i%d.PerSample
		if k != batch[at] {
			s.Errorf("%s: element %d is kept: %t, but element %d of the whole batch: %t", what, i, k, at, batch[at])
			return
		}
	}
}
