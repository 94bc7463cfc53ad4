package nn

import (
	"math"
	"testing"
)

func TestCrossEntropyIsStable(t *testing.T) {
	logits := Matrix{2, 3, []float32{1e4, 0, -1e4, -1e30, 1e30, 0}}
	grad := Matrix{2, 3, make([]float32, 6)}
	if got := CrossEntropy(logits, []int32{0, 1}, grad); got != 0 {
		t.Errorf("loss of certain and right predictions is %v, want 0", got)
	}
	sameBits(t, "gradient", grad.Data, make([]float32, 6))
	if got := CrossEntropy(logits, []int32{1, 1}, grad); got != 5000 {
		t.Errorf("loss of a certain and wrong prediction is %v, want 5000", got)
	}
	sameBits(t, "gradient", grad.Data, []float32{0.5, -0.5, 0, 0, 0, 0})
}

func TestCrossEntropyOfEqualLogits(t *testing.T) {
	got := CrossEntropy(Matrix{1, 10, make([]float32, 10)}, []int32{3}, Matrix{})
	if math.Abs(got-math.Log(10)) > 1e-15 {
		t.Errorf("loss %v, want log 10", got)
	}
}

func TestLossGradientsMayOverwrite(t *testing.T) {
	apart, labels := Matrix{3, 4, make([]float32, 12)}, []int32{1, 0, 3}
	logits := matrix(3, 4, 1)
	CrossEntropy(logits, labels, apart)
	CrossEntropy(logits, labels, logits)
	sameBits(t, "cross entropy", logits.Data, apart.Data)
	pred, targets := matrix(3, 4, 1), fill(12, 2)
	MSE(pred, targets, apart)
	MSE(pred, targets, pred)
	sameBits(t, "mean squared error", pred.Data, apart.Data)
}

// A run that diverges must show it.
func TestNaNIsSeen(t *testing.T) {
	nan := float32(math.NaN())
	for at := range 3 {
		logits := matrix(1, 3, 1)
		logits.Data[at] = nan
		if got := CrossEntropy(logits, []int32{1}, Matrix{}); got == got {
			t.Errorf("loss with NaN in logit %d is %v", at, got)
		}
	}
	if got := MSE(Matrix{1, 1, []float32{nan}}, []float32{0}, Matrix{}); got == got {
		t.Errorf("mean squared error of NaN is %v", got)
	}
	r := &relu{activation: activation{width: 1}}
	r.Plan(1, true)
	if y := r.Forward(Matrix{1, 1, []float32{nan}}).Data[0]; y == y {
		t.Errorf("relu of NaN is %v", y)
	}
}

func TestCorrect(t *testing.T) {
	logits := Matrix{4, 3, []float32{
		1, 2, 3,
		3, 3, 1,
		3, 3, 1,
		-3, -1, -2,
	}}
	if got := Correct(logits, []int32{2, 0, 1, 1}); got != 3 {
		t.Errorf("%d correct, want 3: of equal ones the first counts", got)
	}
}
