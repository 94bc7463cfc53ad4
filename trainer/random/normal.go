package random

import (
	"fmt"
	"math"
)

// normalBlock is the length from which on PyTorch draws whole blocks, and theirs.
const normalBlock = 16

// Normal fills dst with normally distributed numbers, as Tensor.normal_(mean,
// std) fills a float32 tensor of as many elements. It panics when std is
// negative or no number.
//
// For 16 numbers or more that is ATen's normal_fill: Box and Muller's method on
// blocks of 16 uniform numbers, all of them drawn before the last 16 elements,
// when they are no whole block, are drawn once more. For fewer it is
// at::normal_distribution<double>, whose second number waits in the generator
// for the next short tensor, whatever is drawn in between.
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

// boxMuller makes normal numbers of uniform ones. Pairs are elements j and j+8.
// What PyTorch's kernel rounds to float32 on the way is rounded here, too: above
// all the angle, for an error there is a large one where the sine is small.
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

// normal returns one number of the standard normal distribution, in float64.
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

// float64 returns the next number of [0, 1), a multiple of 2^-53, as one element
// of torch.rand in float64.
func (g *Generator) float64() float64 {
	high := uint64(g.Uint32())
	bits := high<<32 | uint64(g.Uint32())
	return float64(bits&(1<<53-1)) * (1.0 / (1 << 53))
}
