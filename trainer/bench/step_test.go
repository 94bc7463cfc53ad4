package bench

import (
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// counted is a device that counts sums of squares.
type counted struct {
	device.Device
	sums int
}

func (c *counted) SumSquares(x device.Tensor) float64 {
	c.sums++
	return c.Device.SumSquares(x)
}

// TestStepTakesTheNorm checks that a step computes the norm with and without clipping, as the
// trainer does to check that it is finite.
func TestStepTakesTheNorm(t *testing.T) {
	for _, clip := range []float64{0, 1} {
		d := &counted{Device: cpu.New(1)}
		training, err := perceptron{in: 3, hidden: []int{4}, out: 2, batch: 5}.prepare(d, device.FP32, 0, allocParams)
		if err == nil {
			err = training.initSingleRank()
		}
		if err != nil {
			t.Fatal(err)
		}
		training.clip = clip
		training.step()
		if d.sums != 4 {
			t.Errorf("clipped to %v: a step took the norms of %d parameters, want 4", clip, d.sums)
		}
	}
}
