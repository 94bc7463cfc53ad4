package conformance

import (
	"math"
	"slices"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

func checkMemory(s *suite) {
	s.run("Alloc", func(s *suite) {
		for _, n := range []int{1, 5, 4099} {
			s.same("fresh memory", s.floats(s.d.Alloc(device.Float32, n)), make([]float32, n))
			s.sameInts("fresh memory", s.ints(s.d.Alloc(device.Int32, n)), make([]int32, n))
			wide := s.empty(n)
			s.d.Cast(wide, s.d.Alloc(device.BFloat16, n))
			s.same("fresh memory", s.floats(wide), make([]float32, n))
		}
		for _, kind := range []device.Type{device.Float32, device.BFloat16, device.Int32} {
			if t := s.d.Alloc(kind, 7); t.Len() != 7 || t.Type() != kind {
				s.Errorf("7 elements of %v are %d of %v", kind, t.Len(), t.Type())
			}
			if t := s.d.Alloc(kind, 0); t.Len() != 0 {
				s.Errorf("no elements of %v are %d", kind, t.Len())
			}
		}
	})
	s.run("ReadWrite", func(s *suite) {
		for _, n := range lengths {
			v, t := s.normal(n), s.empty(n)
			s.d.Write(t, v)
			s.same("written", s.floats(t), v)
			s.same("device.Floats", device.Floats(s.d, t), v)
			tokens, ints := s.upTo(n, 1<<30), s.emptyInts(n)
			s.d.WriteInts(ints, tokens)
			s.sameInts("written", s.ints(ints), tokens)
			device.Fill(s.d, t, func(dst []float32) { copy(dst, filled(n, 3)) })
			s.same("device.Fill", s.floats(t), filled(n, 3))
			if s.d.Host() {
				s.same("Tensor.Floats", t.Floats(), filled(n, 3))
				s.sameInts("Tensor.Ints", ints.Ints(), tokens)
			}
		}
	})
	s.run("Checksum", func(s *suite) {
		for _, n := range append([]int{0, 1, 2, 100_003}, lengths...) {
			v := s.normal(n)
			want := s.d.Checksum(s.input(v))
			if again := s.d.Checksum(s.input(v)); again != want {
				s.Errorf("%d elements: %x, and again %x", n, want, again)
			}
			for _, i := range []int{0, n / 2, n - 1} {
				if i < 0 || i >= n {
					continue
				}
				for _, bit := range []int{0, 22, 31} {
					changed := slices.Clone(v)
					changed[i] = math.Float32frombits(math.Float32bits(v[i]) ^ 1<<bit)
					if s.d.Checksum(s.input(changed)) == want {
						s.Errorf("%d elements: no change after bit %d of element %d", n, bit, i)
					}
				}
				if i > 0 && math.Float32bits(v[0]) != math.Float32bits(v[i]) {
					changed := slices.Clone(v)
					changed[0], changed[i] = v[i], v[0]
					if s.d.Checksum(s.input(changed)) == want {
						s.Errorf("%d elements: no change after an exchange of elements 0 and %d", n, i)
					}
				}
			}
		}
	})
	s.run("Copy", func(s *suite) {
		for _, n := range lengths {
			v, tokens := s.normal(n), s.upTo(n, 1<<30)
			src, dst := s.input(v), s.empty(n)
			s.d.Copy(dst, src)
			s.same("copied", s.floats(dst), v)
			ints := s.emptyInts(n)
			s.d.Copy(ints, s.tokens(tokens))
			s.sameInts("copied", s.ints(ints), tokens)

			// Slices of bfloat16 tensors: an element has two bytes.
			first, second := s.d.Alloc(device.BFloat16, n+2), s.d.Alloc(device.BFloat16, n+2)
			s.d.Cast(first.Slice(1, n+1), src)
			s.d.Copy(second.Slice(1, n+1), first.Slice(1, n+1))
			wide := s.empty(n + 2)
			s.d.Cast(wide, second)
			want := make([]float32, n+2)
			for i, x := range v {
				want[i+1] = toBFloat16(x)
			}
			s.same("copied bfloat16", s.floats(wide), want)
			s.d.Zero(second.Slice(1, n+1))
			s.d.Cast(wide, second)
			s.same("cleared bfloat16", s.floats(wide), make([]float32, n+2))
		}
	})
	s.run("Zero", func(s *suite) {
		for _, n := range lengths {
			t, ints := s.empty(n), s.emptyInts(n)
			s.d.Zero(t)
			s.d.Zero(ints)
			s.same("cleared", s.floats(t), make([]float32, n))
			s.sameInts("cleared", s.ints(ints), make([]int32, n))
		}
	})
}
