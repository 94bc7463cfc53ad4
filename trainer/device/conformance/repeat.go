package conformance

import (
	"math"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// operation is one call as in a training step, with operands from a fixed seed, large enough to be
// divided among threads.
type operation struct {
	name    string
	prepare func(*suite) (run func(), results []device.Tensor)
}

// checkRepeat runs every operation twice from the same state, and then counts its allocations.
func checkRepeat(s *suite) {
	for _, o := range operations() {
		s.run(o.name, func(s *suite) {
			first, again := s.outcome(o), s.outcome(o)
			s.sameBits(first, again)
			run, _ := o.prepare(s)
			if n := testing.AllocsPerRun(2, run); n != 0 { // AllocsPerRun does not count the first call
				s.Errorf("%v allocations", n)
			}
		})
	}
}

// Same fails unless two devices give the same bits, for example with one and with several threads,
// or with different instructions.
func Same(t *testing.T, a, b func() device.Device) {
	one, other := &suite{T: t, d: a()}, &suite{T: t, d: b()}
	for _, o := range operations() {
		t.Run(o.name, func(t *testing.T) {
			left, right := *one, *other
			left.T, right.T = t, t
			left.sameBits(left.outcome(o), right.outcome(o))
		})
	}
}

// outcome returns the results of an operation as bits.
func (s *suite) outcome(o operation) [][]uint32 {
	s.r = source()
	run, results := o.prepare(s)
	run()
	out := make([][]uint32, len(results))
	for i, t := range results {
		out[i] = s.bits(t)
	}
	return out
}

func (s *suite) sameBits(a, b [][]uint32) {
	s.Helper()
	for i := range a {
		for j, v := range a[i] {
			if v != b[i][j] {
				s.Errorf("element %d of result %d is %#x and then %#x (%v and %v)", j, i, v, b[i][j], math.Float32frombits(v), math.Float32frombits(b[i][j]))
				return
			}
		}
	}
}
