package random

import "fmt"

// MaxPerm is the maximum length of a permutation. For longer ones, PyTorch uses a different method,
// which changed in version 2.6.
const MaxPerm = 214748363

// Perm returns a permutation of 0..n-1, like torch.randperm(n), and consumes n-1 numbers of the
// stream. It panics if n is negative or above MaxPerm.
func (g *Generator) Perm(n int) []int {
	if n < 0 || n > MaxPerm {
		panic(fmt.Sprintf("random: permutation of %d elements, want 0 to %d", n, MaxPerm))
	}
	p := make([]int, n)
	for i := range p {
		p[i] = i
	}
	for i := range n - 1 {
		j := i + int(g.Uint32()%uint32(n-i))
		p[i], p[j] = p[j], p[i]
	}
	return p
}
