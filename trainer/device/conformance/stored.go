package conformance

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// checkStored tests operations on stored tensors for BF16, at any alignment and at the preferred
// one. If the stored type is Float32, the other checks have tested this.
func checkStored(s *suite) {
	if s.stored = s.d.Stored(device.BF16); s.stored == device.Float32 {
		return
	}
	for _, s.aligned = range []bool{false, true} {
		s.run(fmt.Sprintf("Aligned=%t", s.aligned), func(s *suite) {
			s.run("MatMul", (*suite).storedProducts)
			s.run("Elementwise", (*suite).storedElements)
			s.run("Normalization", func(s *suite) {
				for _, size := range [][2]int{{1, 1}, {5, 7}, {9, 64}, {33, 257}, {130, 768}, {2, 1024}, {2, 1032}} {
					s.layerNorm(size[0], size[1])
				}
			})
			s.run("ColumnSum", func(s *suite) {
				for _, size := range [][2]int{{1, 1}, {5, 3}, {130, 40}, {300, 17}, {1030, 72}} {
					for _, l := range []layout{whole, padded, {pad: 8}} {
						s.columnSum(size[0], size[1], l)
					}
				}
			})
			s.run("Attention", func(s *suite) {
				for _, size := range []struct{ heads, headSize, length int }{{2, 5, 33}, {3, 16, 70}, {2, 64, 65}, {1, 72, 130}, {1, 136, 40}} {
					shape := device.AttentionShape{Heads: size.heads, HeadSize: size.headSize, MaxLength: size.length, Precision: device.BF16}
					s.attention(s.d.NewAttention(shape), sequences{AttentionShape: shape, batch: 2, queries: size.length, keys: size.length})
				}
			})
			s.run("Losses", func(s *suite) {
				for _, size := range [][2]int{{1, 1}, {3, 10}, {65, 264}, {5, 4104}} {
					for _, scale := range []float32{0, 1, 0.125 / 3} {
						for _, magnitude := range []float32{1, 30, 1e30} {
							s.crossEntropy(size[0], size[1], magnitude, 0, scale)
						}
					}
				}
				s.argMax()
			})
		})
	}
}

// storedProducts tests matrix multiplications with stored operands and results, mixed with Float32.
func (s *suite) storedProducts() {
	half := s.stored
	for _, of := range []types{{half, half, half}, {half, half, device.Float32}, {half, device.Float32, half}, {device.Float32, half, device.Float32}, {device.Float32, device.Float32, half}} {
		for _, size := range [][3]int{{1, 1, 1}, {5, 7, 3}, {17, 33, 9}, {33, 72, 40}, {64, 16, 130}} {
			p := product{m: size[0], n: size[1], k: size[2], precision: device.BF16, of: of, storedBias: of.b == of.c}
			for _, o := range []struct{ a, b, c layout }{{whole, whole, whole}, {transposed, padded, padded}, {layout{pad: 8}, apart, whole}} {
				p.a, p.b, p.c = o.a, o.b, o.c
				p.accumulate, p.bias = false, false
				s.product(p)
				p.accumulate = true
				s.product(p)
				p.accumulate, p.bias = false, true
				s.product(p)
				s.productsWithSum(p)
			}
			p.a, p.b, p.c = whole, transposed, whole
			for _, f := range activations {
				p.activation, p.bias = f, true
				s.product(p)
				p.samePre = true
				s.product(p)
				p.samePre = false
			}
			p.activation, p.bias, p.gradient = device.GELU, false, true
			s.product(p)
		}
	}
}

// storedElements tests activations and dropout of stored tensors.
func (s *suite) storedElements() {
	tensor := func(v []float32, free bool) device.Tensor { return s.storedMatrix(v, 1, len(v), free).Data }
	for _, n := range []int{1, 8, 17, 1027, 4096} {
		x, dy := roundTo(s.stored, s.arguments(n)), roundTo(s.stored, s.normal(n))
		for _, f := range activations {
			y, inPlace := tensor(nans(n), true), tensor(x, true)
			s.d.Activate(f, y, tensor(x, false))
			s.d.Activate(f, inPlace, inPlace)
			values, want, grads := s.floats(y), make([]real, n), make([]real, n)
			for i := range want {
				want[i] = activate(f, exact(x[i])).in(s.stored)
				grads[i] = exact(dy[i]).times(derivative(f, exact(x[i]), exact(values[i]))).in(s.stored)
			}
			s.close(fmt.Sprintf("activation %d of %d", f, n), values, want)
			s.same("in place", s.floats(inPlace), values)
			dx := tensor(nans(n), true)
			s.d.ActivateGrad(f, dx, tensor(dy, false), tensor(x, false), y)
			s.close(fmt.Sprintf("gradient of activation %d of %d", f, n), s.floats(dx), grads)
		}
		d := device.Dropout{P: 0.3, Key: 9, First: 4, Stride: 3, PerSample: n}
		mask, want := s.dropoutMask(d, 1), make([]real, n)
		for i := range x {
			if mask[i] {
				want[i] = exact(x[i]).times(scaleOf(d)).in(s.stored)
			}
		}
		y, same, narrowed := tensor(nans(n), true), tensor(x, true), tensor(nans(n), true)
		s.d.Dropout(y, tensor(x, false), d)
		s.d.Dropout(same, same, d)
		s.d.Dropout(narrowed, s.input(x), d)
		s.close("dropout", s.floats(y), want)
		s.same("dropout in place", s.floats(same), s.floats(y))
		s.same("dropout of float32", s.floats(narrowed), s.floats(y))
	}
}
