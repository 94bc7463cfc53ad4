package cpu

import (
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/vec"
)

const (
	// squaresBlock is the number of elements that one thread sums at a time. It is fixed, so that
	// the order of additions does not depend on the number of threads.
	squaresBlock = 1 << 16
	// squaresRound is the number of blocks per round. Their sums take 32 KiB. Tensors with more
	// than 2^28 elements take several rounds.
	squaresRound = 1 << 12
)

// squares computes sums of squares, divided among threads by blocks.
type squares struct {
	unit *vec.Unit
	x    []float32
	sums []float64 // one per block of a round
}

// SumSquares returns the sum of the squares of x's elements. It sums blocks of 65,536 elements with
// 8 partial sums each, and adds the sums of the blocks in ascending order.
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

// ChunkSquares computes SumSquares of each chunk.
func (d *Device) ChunkSquares(sums device.Tensor, pitch int, x device.Tensor, chunks int, add bool) {
	to, n := sums.Doubles(), x.Len()/chunks
	for i := range chunks {
		sum := d.SumSquares(x.Slice(i*n, (i+1)*n))
		if add {
			sum += to[i*pitch]
		}
		to[i*pitch] = sum
	}
}

func (j *squares) blocks() int { return (len(j.x) + squaresBlock - 1) / squaresBlock }

func (j *squares) part(thread, threads int) {
	first, end := share(j.blocks(), 1, thread, threads)
	for i := first; i < end; i++ {
		j.sums[i] = j.unit.SumSquares(j.x[i*squaresBlock : min((i+1)*squaresBlock, len(j.x))])
	}
}
