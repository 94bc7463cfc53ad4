package nn

import (
	"math"
	"slices"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// TestBF16TrainingFollowsFP32 checks that the losses with bfloat16 matmuls are close to the losses
// in float32, but not equal.
func TestBF16TrainingFollowsFP32(t *testing.T) {
	var file gptGolden
	readGolden(t, "gpt_golden.json", &file)
	r := file.Training
	r.Steps = 20
	losses := map[device.Precision][]float64{}
	for _, p := range []device.Precision{device.FP32, device.BF16} {
		d := cpu.New(1)
		losses[p], _ = trainGPT(startGPT(t, d, r, file.Seed, r.Batch, p), d, r)
	}
	worst := 0.0
	for i, want := range losses[device.FP32] {
		worst = max(worst, math.Abs(losses[device.BF16][i]-want))
	}
	if !(worst <= 1e-2) || worst < 1e-7 {
		t.Errorf("losses differ by at most %.2g, want above 1e-7 and up to 1e-2", worst)
	}
}

// TestBF16Gradients checks that gradients in bfloat16 are close to gradients in float32, but not
// equal. A ReLU whose input is close to 0 may switch, so single elements may differ by any amount.
func TestBF16Gradients(t *testing.T) {
	for _, k := range slices.Concat(smallKinds[1:], largeKinds) {
		full, half := k.start(t, cpu.New(2), 0, device.FP32), k.start(t, cpu.New(2), 0, device.BF16)
		b, pass := full.every(0, 1), Pass{Train: true, Weight: 1}
		full.step(b, pass)
		half.step(b, pass)
		got := half.grads()
		for i, want := range full.grads() {
			difference, size := 0.0, 0.0
			for j, v := range want {
				difference += math.Pow(float64(got[i][j])-float64(v), 2)
				size += math.Pow(float64(v), 2)
			}
			if off := math.Sqrt(difference / size); !(off <= 0.15) || off == 0 {
				t.Errorf("%s: the gradient of %s differs by %.2g of it, want above 0 and up to 0.15", k.name, full.model.Params()[i].Name, off)
			}
		}
	}
}

// recorder is a device that counts the precisions of matmuls.
type recorder struct {
	device.Device
	asked map[device.Precision]int
}

func (r recorder) MatMul(p device.Product) {
	r.asked[p.Precision]++
	r.Device.MatMul(p)
}

func (r recorder) NewConvolution(s device.ConvolutionShape) device.Convolution {
	r.asked[s.Precision]++
	return r.Device.NewConvolution(s)
}

func (r recorder) NewAttention(s device.AttentionShape) device.Attention {
	r.asked[s.Precision]++
	return r.Device.NewAttention(s)
}

// TestPrecisionOfMatmuls checks that every matmul of a model has the precision of its plan.
func TestPrecisionOfMatmuls(t *testing.T) {
	for _, k := range smallKinds {
		for _, p := range []device.Precision{device.FP32, device.BF16} {
			r := recorder{cpu.New(1), map[device.Precision]int{}}
			e := k.start(t, r, 0, p)
			e.step(e.every(0, 1), Pass{Train: true, Weight: 1})
			e.model.Forward(e.every(0, 1), Pass{})
			if r.asked[p] == 0 || len(r.asked) != 1 {
				t.Errorf("%s planned for precision %d asked for %v", k.name, p, r.asked)
			}
		}
	}
}
