package cpu

import (
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/vec"
)

const (
	// squaresBlock is the elements of a sum that one thread takes: the order of
	// adding does not depend on their number.
	squaresBlock = 1 << 16
	// squaresRound is the blocks whose sums exist at once: they take 32 KiB. Tensors
	// of more than 2^28 elements take several rounds.
	squaresRound = 1 << 12
)

// squares are sums of squares, divided by blocks.
type squares struct {
	unit *vec.Unit
	x    []float32
	sums []float64 // of each block of a round
}

// SumSquares is the sum of the squares of x's elements: the sums of blocks of 65536
// elements, each of 8 partial sums, added up in rising order.
func (d *Device) SumSquares(x device.Tensor) float64 {
	j, rest, total := &d.squares, x.Floats(), 0.0
	for len(rest) > 0 {
		n := min(len(rest), len(j.sums)*squaresBlock)
		j.x, rest = rest[:n], rest[n:]
		d.pool.do(j, j.blocks(), n)
		for _, sum := range j.sums[:j.blocks()] {
			total += sum
		}
	}
	j.x = nil
	return total
}

func (j *squares) blocks() int { return (len(j.x) + squaresBlock - 1) / squaresBlock }

func (j *squares) part(thread, threads int) {
	first, end := share(j.blocks(), 1, thread, threads)
	for i := first; i < end; i++ {
		j.sums[i] = j.unit.SumSquares(j.x[i*squaresBlock : min((i+1)*squaresBlock, len(j.x))])
	}
}
