package cpu

import (
	"slices"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// TestSumSquaresOfManyBlocks checks that SumSquares sums the blocks in ascending order, for any
// number of threads and rounds, without allocations.
func TestSumSquaresOfManyBlocks(t *testing.T) {
	x := make([]float32, 5*squaresBlock+3)
	random.New(1).Uniform(-1, 1, x)
	want := 0.0
	for block := range slices.Chunk(x, squaresBlock) {
		want += New(1).unit.SumSquares(block)
	}
	for _, threads := range []int{1, 2, 3} {
		for _, round := range []int{1, 2, 3, squaresRound} {
			d := New(threads)
			d.squares.sums = make([]float64, round)
			got := 0.0
			allocations := testing.AllocsPerRun(2, func() { got = d.SumSquares(device.Host(x)) })
			if got != want || allocations != 0 {
				t.Errorf("%d threads, rounds of %d blocks: %v with %v allocations, want %v", threads, round, got, allocations, want)
			}
		}
	}
}
