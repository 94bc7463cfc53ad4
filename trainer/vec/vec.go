// Package vec computes on slices of float32, close to the peak rate of the core or of its memory:
// activations and their gradients, sums and other reductions, the parts of softmax and layer
// normalization, dropout, optimizer steps, and conversions between float32 and bfloat16.
//
// The arithmetic is fixed. Every function is one sequence of operations on an element, each rounded
// separately, without fused multiply-adds and approximate instructions. A reduction has a fixed
// number of partial sums and a fixed order to add them. internal/vecgen writes AVX-512, AVX2, and
// portable code from the same description. All give the same bits, on every CPU and for every
// alignment, except for the bits of a NaN.
//
// [New] selects the fastest kernels that the CPU supports. Slices of a call must have the same
// length; others cause a panic, like all invalid arguments. The destination may be the same slice
// as a source, but must not overlap one otherwise. Calls allocate nothing, access nothing outside
// of the slices, and start no goroutines: to use several threads, divide the slices. The Go
// scheduler cannot preempt a call, which may take a millisecond for some million elements.
//
// The package does not multiply matrices (see package gemm) and supports no other types. It has
// vector kernels only for amd64. On other architectures, the portable code has the same guarantees
// but is slow.
package vec

import "fmt"

//go:generate go run ./internal/vecgen

// A Unit computes with one instruction set. It has no state and is safe for concurrent use.
type Unit struct{ set instructions }

// instructions is an instruction set, ordered from slowest to fastest.
type instructions int

const (
	portable instructions = iota
	avx2
	avx512
)

var setNames = [...]string{"portable", "avx2", "avx512"}

// New returns the fastest unit of this CPU.
func New() *Unit { return &Unit{fastest()} }

// Named returns the unit with a name from [Kernels]. It panics for any other name.
func Named(name string) *Unit {
	for set := range instructions(len(setNames)) {
		if set.supported() && set.String() == name {
			return &Unit{set}
		}
	}
	panic(fmt.Sprintf("vec: no kernels %q for this CPU", name))
}

// Kernels returns the names of the units that this CPU supports, fastest first: "avx512", "avx2",
// and "portable".
func Kernels() []string {
	var names []string
	for set := fastest(); set >= portable; set-- {
		if set.supported() {
			names = append(names, set.String())
		}
	}
	return names
}

// Kernel returns the name of the unit.
func (u *Unit) Kernel() string { return u.set.String() }

func (s instructions) String() string { return setNames[s] }

// fastest returns the fastest instruction set that this CPU supports.
func fastest() instructions {
	set := instructions(len(setNames) - 1)
	for !set.supported() {
		set--
	}
	return set
}

// same panics unless all lengths are equal.
func same(n int, others ...int) {
	for _, other := range others {
		if other != n {
			panic(fmt.Sprintf("vec: slices of %d and %d elements", n, other))
		}
	}
}
