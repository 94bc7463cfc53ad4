// Package vec computes on slices of float32 at the speed of the core or of its
// memory: activations and their gradients, sums and other reductions, the parts of
// softmax and layer norm, dropout, steps of optimizers, and conversions to and
// from bfloat16.
//
// The arithmetic is fixed. Every function is one sequence of operations on an
// element, each rounded alone, with no fused multiply-add and no approximate
// instruction; a reduction has a fixed number of partial sums and a fixed order of
// adding those. AVX-512, AVX2 and portable code are written by internal/vecgen
// from the same description and give the same bits, whatever the processor and
// the alignment. Which NaN stands in a result that is not a number is not part of
// this promise.
//
// The fastest kernels that the processor has are chosen by [New]. Slices of a call
// must have the same length; others panic, as all misuse does. The destination may
// be the same slice as a source, but must not overlap one otherwise. Nothing is
// allocated, nothing outside of the slices is read or written, and no call starts
// a goroutine: who divides work among threads divides the slices. The scheduler
// cannot interrupt a call, which may take a millisecond for some million elements.
//
// It does not multiply matrices (that is package gemm), has no other types, and no
// vector kernels for anything but amd64: elsewhere the portable code keeps the
// promise above, but not the speed.
package vec

import "fmt"

//go:generate go run ./internal/vecgen

// Unit computes with one set of instructions. It has no state, and may be used by
// many goroutines at once.
type Unit struct{ set instructions }

// instructions are what a unit uses, from the slowest to the fastest.
type instructions int

const (
	portable instructions = iota
	avx2
	avx512
)

var setNames = [...]string{"portable", "avx2", "avx512"}

// New returns the fastest unit of this processor.
func New() *Unit { return &Unit{fastest()} }

// Named returns the unit of a name among [Kernels], and panics for any other.
func Named(name string) *Unit {
	for set := range instructions(len(setNames)) {
		if set.supported() && set.String() == name {
			return &Unit{set}
		}
	}
	panic(fmt.Sprintf("vec: no kernels called %q for this processor", name))
}

// Kernels names all units that this processor can run, the fastest first:
// "avx512", "avx2" and "portable".
func Kernels() []string {
	var names []string
	for set := fastest(); set >= portable; set-- {
		if set.supported() {
			names = append(names, set.String())
		}
	}
	return names
}

// Kernel is the name of the unit.
func (u *Unit) Kernel() string { return u.set.String() }

func (s instructions) String() string { return setNames[s] }

// fastest returns the best that this processor can run.
func fastest() instructions {
	set := instructions(len(setNames) - 1)
	for !set.supported() {
		set--
	}
	return set
}

// same panics unless all lengths are the first.
func same(n int, others ...int) {
	for _, other := range others {
		if other != n {
			panic(fmt.Sprintf("vec: slices of %d and %d elements", n, other))
		}
	}
}
