package random

import (
	"fmt"
	"math"
)

// normalBlock is the minimum length for which PyTorch generates whole blocks, and the block length.
const normalBlock = 16

// Normal fills dst with normally distributed values, as Tensor.normal_(mean, std) fills a float32
// tensor of the same length. It panics if std is negative or NaN.
//
// For 16 values or more it implements ATen's normal_fill: the Box-Muller method on blocks of 16
// uniform values, which are all generated first. If the length is not a multiple of 16, the last 16
// values are generated again. For fewer values it implements at::normal_distribution<double>, whose
// second value is stored in the generator for the next short tensor, whatever is generated in
// between.
func (g *Generator) Normal(mean, std float64, dst []float32) {
	if !(std >= 0) {
		panic(fmt.Sprintf("random: normal distribution with standard deviation %v, want 0 or more", std))
	}
	if len(dst) < normalBlock {
		for i := range dst {
			dst[i] = float32(mulAdd(g.normal(), std, mean))
		}
		return
	}
	g.fill(dst)
	for i := 0; i+normalBlock <= len(dst); i += normalBlock {
		boxMuller(float32(mean), float32(std), (*[normalBlock]float32)(dst[i:]))
	}
	if len(dst)%normalBlock != 0 {
		last := dst[len(dst)-normalBlock:]
		g.fill(last)
		boxMuller(float32(mean), float32(std), (*[normalBlock]float32)(last))
	}
}

// boxMuller converts uniform values to normal values. Pairs are elements j and j+8. It rounds
// intermediate values to float32 where PyTorch's kernel does. Most important is the angle: its
// rounding error has a large effect where the sine is small.
func boxMuller(mean, std float32, block *[normalBlock]float32) {
	const half = normalBlock / 2
	var radius [half]float32
	for j, u := range block[:half] {
		square := -2 * float32(logUnit(float64(1-u)))
		radius[j] = float32(math.Sqrt(float64(square)))
	}
	for j, r := range radius {
		sin, cos := sincosTurn(float64(block[j+half] * (2 * math.Pi)))
		block[j] = float32(r*float32(cos)*std) + mean
		block[j+half] = float32(r*float32(sin)*std) + mean
	}
}

// normal returns a value of the standard normal distribution, in float64.
func (g *Generator) normal() float64 {
	if g.hasSpare {
		g.hasSpare = false
		return g.spare
	}
	angle, u := g.float64(), g.float64()
	radius := math.Sqrt(-2 * logUnit(1-u))
	sin, cos := sincosTurn(2 * math.Pi * angle)
	g.spare, g.hasSpare = radius*sin, true
	return radius * cos
}

// float64 returns the next value in [0, 1), a multiple of 2^-53, like an element of torch.rand in
// float64.
func (g *Generator) float64() float64 {
	high := uint64(g.Uint32())
	bits := high<<32 | uint64(g.Uint32())
	return float64(bits&(1<<53-1)) * (1.0 / (1 << 53))
}
