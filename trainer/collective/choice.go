package collective

import "math/bits"

// Algorithm is how ranks that send each other messages work on a buffer of which each
// has one part.
type Algorithm string

// The algorithms.
const (
	// Ring passes parts round: the fewest bytes, as many steps as there are ranks.
	Ring Algorithm = "ring"
	// Doubling exchanges all that there is with ranks at distances 1, 2, 4...: the
	// fewest steps. Of parts that are gathered it is as good as Halving.
	Doubling Algorithm = "recursive doubling"
	// Halving exchanges halves, quarters... and gathers them back: few steps, and where
	// the number of ranks is a power of two the fewest bytes; else some ranks take part
	// through others, which takes two more steps with all of the buffer.
	Halving Algorithm = "halving-doubling"
)

// Sizes in bytes at which another algorithm takes over, measured over TCP with few
// ranks: below the first the number of steps counts, above the second only what each
// rank sends.
const (
	fewStepsBelow = 32 << 10
	halvingBelow  = 1 << 20
)

// stepWorth is the bytes that take as long as a step does beside them: what 10 Gbit/s
// carry in 50 us, and 100 Gbit/s in 5. (Measured over sockets of one machine, 24 ranks add
// up 40 KiB in 1.5 ms by halving and in 5 by a ring, and 1000 KiB in 7.6 and 9.1.)
const stepWorth = 64 << 10

// ReduceAlgorithm is how messages reduce so many bytes over n ranks, 2 or more. Every
// reduction asks this with the bytes of the whole buffer, of which the result is all, a
// part or one rank's: so an element's order does not depend on the operation.
func ReduceAlgorithm(bytes, n int) Algorithm {
	switch {
	case bytes < fewStepsBelow:
		return Doubling
	case bytes < ringFrom(n):
		return Halving
	}
	return Ring
}

// GatherAlgorithm is how the parts of so many bytes come to all of n ranks.
func GatherAlgorithm(bytes, n int) Algorithm {
	if bytes < ringFrom(n) {
		return Doubling
	}
	return Ring
}

// AcrossAlgorithm is ReduceAlgorithm between n nodes, of each of which so many ranks
// share memory and the work; and the bytes that one of them works on: its share, or all
// where that saves the node a step.
func AcrossAlgorithm(bytes, onNode, n int) (a Algorithm, share int) {
	if bytes <= smallRoom {
		return Doubling, bytes
	}
	share = bytes / onNode
	return ReduceAlgorithm(share, n), share
}

// ringFrom is the bytes from which on a ring is worth its steps, of which it has n-1
// each way where halving has log2 n. It grows with n: at 16,384 ranks it is 1 GiB.
func ringFrom(n int) int {
	more := n - bits.Len(uint(n)) // n-1, less log2 n
	if n&(n-1) == 0 {
		return max(halvingBelow, more*stepWorth)
	}
	// Of the two steps with all of the buffer that halving takes here, one is each way:
	// it is a step more, and the ring saves its bytes.
	return max(0, more-1) * stepWorth
}
