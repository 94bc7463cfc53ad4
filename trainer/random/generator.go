// Package random is PyTorch's CPU random number generator: the 32-bit Mersenne
// Twister and the few drawings that the trainer needs from it.
//
// The same seed gives the same bits as torch.manual_seed in uniform numbers
// (torch.rand, Tensor.uniform_) and in permutations (torch.randperm), on every
// processor. That is what makes initial weights and the order of the samples
// equal to those of a PyTorch program, and it is tested against vectors that
// PyTorch wrote.
//
// It has no normal distribution, no float64 drawings and no state to save: who
// needs a position in the stream again seeds a new generator and draws again.
// It is not for secrets.
package random

const (
	stateLen = 624
	shiftLen = 397
)

// Generator is one stream of random numbers. It is not safe for concurrent use.
type Generator struct {
	state [stateLen]uint32
	next  int // first unused word of state; stateLen when all are used
}

// New returns a generator in the state that torch.manual_seed(seed) leaves.
// Only the low 32 bits of seed count, as in PyTorch; a negative Python seed s
// is uint64(s), its two's complement.
func New(seed uint64) *Generator {
	g := &Generator{next: stateLen}
	g.state[0] = uint32(seed)
	for i := 1; i < stateLen; i++ {
		prev := g.state[i-1]
		g.state[i] = 1812433253*(prev^prev>>30) + uint32(i)
	}
	return g
}

// Uint32 returns the next 32 random bits.
func (g *Generator) Uint32() uint32 {
	if g.next == stateLen {
		g.refill()
	}
	y := g.state[g.next]
	g.next++
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

// refill computes the next stateLen words in place.
func (g *Generator) refill() {
	for i := range g.state {
		y := g.state[i]&0x80000000 | g.state[(i+1)%stateLen]&0x7fffffff
		z := g.state[(i+shiftLen)%stateLen] ^ y>>1
		if y&1 != 0 {
			z ^= 0x9908b0df
		}
		g.state[i] = z
	}
	g.next = 0
}
