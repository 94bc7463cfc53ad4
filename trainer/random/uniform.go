package random

import "github.com/ddpbatch/ddpbatch/trainer/fma"

// Float32 returns the next value in [0, 1), a multiple of 2^-24, like an element of torch.rand.
func (g *Generator) Float32() float32 { return unit(g.Uint32()) }

func unit(bits uint32) float32 { return float32(bits&(1<<24-1)) * (1.0 / (1 << 24)) }

// fill sets every element of dst to the next Float32.
func (g *Generator) fill(dst []float32) {
	for len(dst) > 0 {
		if g.next == stateLen {
			g.refill()
		}
		n := min(len(dst), stateLen-g.next)
		part := dst[:n]
		for i, y := range g.state[g.next:][:n] {
			part[i] = unit(temper(y))
		}
		g.next += n
		dst = dst[n:]
	}
}

// Uniform fills dst with values between lo and hi, as Tensor.uniform_(lo, hi) fills a float32
// tensor. Both bounds are rounded to float32, and each value is x*(hi-lo)+lo with one rounding,
// because PyTorch's kernels use fused multiply-adds. Rounding may yield hi itself. It panics unless
// lo <= hi.
func (g *Generator) Uniform(lo, hi float64, dst []float32) {
	if !(lo <= hi) {
		panic("random: lower bound of a uniform distribution above its upper bound")
	}
	from := float32(lo)
	span := float32(hi) - from
	for i := range dst {
		dst[i] = fma.Float32(g.Float32(), span, from)
	}
}
