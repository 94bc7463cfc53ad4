package collective

import "math/bits"

// An Algorithm is a way to reduce or gather a buffer over ranks that exchange messages. Each rank
// owns one part of the buffer.
type Algorithm string

// The algorithms differ in the number of steps and of bytes.
const (
	// Ring passes parts around a ring: it sends the fewest bytes, in as many steps as there are
	// ranks.
	Ring Algorithm = "ring"
	// Doubling exchanges the whole buffer with ranks at distances 1, 2, 4, and so on: it takes the
	// fewest steps. To gather parts, it sends as few bytes as Halving.
	Doubling Algorithm = "recursive doubling"
	// Halving exchanges halves, quarters, and so on, and gathers them back in the reverse order. It
	// takes few steps, and sends the fewest bytes if the number of ranks is a power of two.
	// Otherwise some ranks take part through a neighbor, which adds two steps with the whole
	// buffer.
	Halving Algorithm = "halving-doubling"
)

// These are the sizes in bytes at which another algorithm becomes faster, measured over TCP with
// few ranks. Below the first, the number of steps matters; above the second, only the bytes that
// each rank sends.
const (
	fewStepsBelow = 32 << 10
	halvingBelow  = 1 << 20
)

// stepBytes is the number of bytes that take as long to send as the latency of a step: 10 Gbit/s
// send them in 50 us, 100 Gbit/s in 5 us. (Measured over sockets of one machine with 24 ranks,
// all-reduce of 40 KiB takes 1.5 ms by halving and 5 ms in a ring; 1000 KiB take 7.6 ms and 9.1
// ms.)
const stepBytes = 64 << 10

// ReduceAlgorithm returns the algorithm that reduces the given number of bytes over n ranks, n >=
// 2. Every reduction passes the size of the whole buffer, even if it needs a part of the result
// only. So the order of an element's reduction does not depend on the operation.
func ReduceAlgorithm(bytes, n int) Algorithm {
	switch {
	case bytes < fewStepsBelow:
		return Doubling
	case bytes < ringFrom(n):
		return Halving
	}
	return Ring
}

// GatherAlgorithm returns the algorithm that gathers the given number of bytes on all of n ranks.
func GatherAlgorithm(bytes, n int) Algorithm {
	if bytes < ringFrom(n) {
		return Doubling
	}
	return Ring
}

// AcrossAlgorithm returns the algorithm between n nodes with onNode ranks each that share the work,
// and the number of bytes that each rank works on: its shard, or the whole buffer if that saves a
// step within the node.
func AcrossAlgorithm(bytes, onNode, n int) (a Algorithm, share int) {
	if bytes <= smallBytes {
		return Doubling, bytes
	}
	share = bytes / onNode
	return ReduceAlgorithm(share, n), share
}

// ringFrom returns the size in bytes above which a ring is faster. A ring has n-1 steps each way,
// and halving has log2 n. The size grows with n: it is 1 GiB for 16,384 ranks.
func ringFrom(n int) int {
	more := n - bits.Len(uint(n)) // n-1 minus log2 n
	if n&(n-1) == 0 {
		return max(halvingBelow, more*stepBytes)
	}
	// Here, halving needs two extra steps with the whole buffer, one each way. So the ring needs
	// more-1 additional steps each way, and it does not send the extra bytes.
	return max(0, more-1) * stepBytes
}
