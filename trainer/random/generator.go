// Package random implements PyTorch's CPU random number generator: the 32-bit Mersenne Twister and
// the few distributions that the trainer needs.
//
// With the seed of torch.manual_seed, uniform values (torch.rand, Tensor.uniform_) and permutations
// (torch.randperm) are bit-identical to PyTorch's. Normal values (torch.randn, Tensor.normal_) are
// equal up to the rounding of float32: about one in six differs by a bit or two. They consume the
// same amount of the stream, so all later values are equal again. All values are bit-identical on
// every CPU. Thus initial weights and the order of samples equal the results of a PyTorch program.
// The tests compare with vectors that PyTorch wrote.
//
// The package has no float64 tensors and no state to save: to return to a position in the stream,
// seed a new generator and repeat the calls. It is not suitable for secrets.
package random

const (
	stateLen = 624
	shiftLen = 397
)

// Generator is a stream of random numbers. It is not safe for concurrent use.
type Generator struct {
	state [stateLen]uint32
	next  int // first unused word of state; stateLen if all are used

	// spare is the second value of normal's last pair, for its next call.
	spare    float64
	hasSpare bool
}

// New returns a generator in the state after torch.manual_seed(seed). Only the low 32 bits of seed
// are used, as in PyTorch; a negative Python seed s is uint64(s), its two's complement.
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
	return temper(y)
}

func temper(y uint32) uint32 {
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

// refill computes the next stateLen words in place.
func (g *Generator) refill() {
	const split = stateLen - shiftLen
	s := &g.state
	for i := range split {
		s[i] = s[i+shiftLen] ^ twist(s[i], s[i+1])
	}
	for i := split; i < stateLen-1; i++ {
		s[i] = s[i-split] ^ twist(s[i], s[i+1])
	}
	s[stateLen-1] = s[shiftLen-1] ^ twist(s[stateLen-1], s[0])
	g.next = 0
}

// twist combines the first bit of a with the rest of b and multiplies by the generator's matrix.
func twist(a, b uint32) uint32 {
	y := a&0x80000000 | b&0x7fffffff
	return y>>1 ^ -(y&1)&0x9908b0df
}
