package random

import "math"

// Float32 returns the next number of [0, 1), a multiple of 2^-24, as one
// element of torch.rand.
func (g *Generator) Float32() float32 {
	return float32(g.Uint32()&(1<<24-1)) * (1.0 / (1 << 24))
}

// Uniform fills dst with numbers between lo and hi, as Tensor.uniform_(lo, hi)
// fills a float32 tensor: both bounds are rounded to float32, and each number is
// x*(hi-lo)+lo with one rounding, because PyTorch's kernels are compiled to
// fused multiply-adds. Rounding may yield hi itself. It panics unless lo <= hi.
func (g *Generator) Uniform(lo, hi float64, dst []float32) {
	if !(lo <= hi) {
		panic("random: lower bound of a uniform distribution above its upper bound")
	}
	from := float32(lo)
	span := float32(hi) - from
	for i := range dst {
		dst[i] = fma32(g.Float32(), span, from)
	}
}

// fma32 returns a*b+c rounded once to float32. The product of two float32 is
// exact in float64; the sum there is rounded to odd, which keeps enough of the
// lost bits for the second rounding, to float32, to be the right one.
func fma32(a, b, c float32) float32 {
	p, q := float64(a)*float64(b), float64(c)
	sum := p + q
	t := sum - p
	lost := (p - (sum - t)) + (q - t) // Knuth's two-sum: p+q == sum+lost
	if bits := math.Float64bits(sum); lost != 0 && bits&1 == 0 {
		if (lost > 0) == (sum > 0) {
			bits++
		} else {
			bits--
		}
		sum = math.Float64frombits(bits)
	}
	return float32(sum)
}
