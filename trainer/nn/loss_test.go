package nn

import (
	"math"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// forwardLogits returns the outcome of a model whose outputs are these logits, and in training
// their gradient.
func forwardLogits(t *testing.T, logits []float32, labels []int32, targets []float32, train bool) (Outcome, []float32) {
	t.Helper()
	rows := max(len(labels), 1)
	cols := len(logits) / rows
	m := newSequential(cols, []Layer{&dropout{width: cols}}) // copies its inputs
	d := cpu.New(1)
	m.Plan(Plan{Device: d, Batch: rows, Train: true})
	b := Batch{Samples: rows, X: put(d, logits)}
	if targets != nil {
		b.Targets = put(d, targets)
	} else {
		b.Labels = putInts(d, labels)
	}
	pass := Pass{Weight: 1}
	pass.Train = train
	out := m.Forward(b, pass)
	return out, get(d, m.outputs().Data)
}

// TestCrossEntropyIsStable checks the loss and gradients of logits that would overflow without the
// maximum subtracted.
func TestCrossEntropyIsStable(t *testing.T) {
	logits := []float32{1e4, 0, -1e4, -1e30, 1e30, 0}
	for _, train := range []bool{true, false} {
		if out, _ := forwardLogits(t, logits, []int32{0, 1}, nil, train); out.Loss != 0 {
			t.Errorf("loss of certain and right predictions is %v, want 0", out.Loss)
		}
		if out, _ := forwardLogits(t, logits, []int32{1, 1}, nil, train); out.Loss != 5000 {
			t.Errorf("loss of a certain and wrong prediction is %v, want 5000", out.Loss)
		}
	}
	_, grad := forwardLogits(t, logits, []int32{0, 1}, nil, true)
	sameBits(t, "gradient", grad, make([]float32, 6))
	_, grad = forwardLogits(t, logits, []int32{1, 1}, nil, true)
	sameBits(t, "gradient", grad, []float32{0.5, -0.5, 0, 0, 0, 0})
}

// TestCrossEntropyOfEqualLogits checks that equal logits of n classes have a loss of log n.
func TestCrossEntropyOfEqualLogits(t *testing.T) {
	out, _ := forwardLogits(t, make([]float32, 10), []int32{3}, nil, false)
	checkRelative(t, "loss", out.Loss, math.Log(10), 1e-7)
}

// TestSquaredErrorIsTheMean checks that the squared error is the mean over all elements, not over
// samples, as in mse_loss.
func TestSquaredErrorIsTheMean(t *testing.T) {
	out, grad := forwardLogits(t, []float32{1, 2, 4, 8}, nil, []float32{0, 4, 4, 4}, true)
	if out.Loss != (1+4+0+16)/4.0 || out.Count != 1 || out.Correct != 0 {
		t.Errorf("outcome %+v", out)
	}
	sameBits(t, "gradient", grad, []float32{0.5, -1, 0, 2})
}

// TestNaNReachesLoss checks that a NaN in logits, targets, or parameters reaches the loss, so that
// a run that diverges is detected.
func TestNaNReachesLoss(t *testing.T) {
	nan := float32(math.NaN())
	for at := range 40 {
		logits := fill(40, 1)
		logits[at] = nan
		for _, train := range []bool{true, false} {
			if out, _ := forwardLogits(t, logits, []int32{1}, nil, train); out.Loss == out.Loss {
				t.Errorf("loss with NaN in logit %d is %v", at, out.Loss)
			}
			if out, _ := forwardLogits(t, logits, nil, make([]float32, 40), train); out.Loss == out.Loss {
				t.Errorf("squared error with NaN in element %d is %v", at, out.Loss)
			}
		}
	}
	for _, k := range smallKinds {
		for at := range k.start(t, cpu.New(1), 0, device.FP32).model.Params() {
			e := k.start(t, cpu.New(1), 0, device.FP32)
			p := e.model.Params()[at]
			v := get(e.device, p.Data)
			for i := range v {
				v[i] = nan
			}
			e.device.Write(p.Data, v)
			out := e.step(e.every(0, 1), Pass{Train: true, Weight: 1})
			if out.Loss == out.Loss {
				t.Errorf("%s: loss with NaN in %s is %v", k.name, p.Name, out.Loss)
			}
		}
	}
}

// TestCorrect checks the count of correct predictions. Of equal logits, the first one counts.
func TestCorrect(t *testing.T) {
	logits := []float32{
		1, 2, 3,
		3, 3, 1,
		3, 3, 1,
		-3, -1, -2,
	}
	for _, c := range []struct {
		labels []int32
		want   int
	}{{[]int32{2, 0, 1, 1}, 3}, {[]int32{1, 1, 1, 2}, 0}, {[]int32{2, 0, 0, 1}, 4}} {
		out, _ := forwardLogits(t, logits, c.labels, nil, false)
		if out.Correct != c.want || out.Count != 4 {
			t.Errorf("labels %v: outcome %+v, want %d correct: of equal ones the first counts", c.labels, out, c.want)
		}
	}
}

// TestEvaluationEqualsTraining checks that training and evaluation compute the same loss, and that
// an evaluation changes neither gradients nor the next step.
func TestEvaluationEqualsTraining(t *testing.T) {
	for _, k := range smallKinds {
		e := k.start(t, cpu.New(1), 0, device.FP32)
		b, pass := e.every(0, 1), Pass{Train: true, Weight: 1}
		trained := e.step(b, pass)
		grads := e.grads()
		evaluated := e.model.Forward(b, Pass{})
		evaluated.Correct = 0
		if evaluated != trained {
			t.Errorf("%s: evaluation %+v, training %+v", k.name, evaluated, trained)
		}
		for i, g := range e.grads() {
			sameBits(t, k.name, g, grads[i])
		}
		e.step(b, pass)
		for i, g := range e.grads() {
			sameBits(t, k.name, g, grads[i])
		}

		// A model that is planned for evaluation only has the same loss.
		alone := k.start(t, cpu.New(1), 0, device.FP32)
		alone.model.Plan(Plan{Device: alone.device, Batch: k.samples})
		got := alone.model.Forward(b, Pass{})
		got.Correct = 0
		if got != trained {
			t.Errorf("%s: planned for evaluation %+v, training %+v", k.name, got, trained)
		}
	}
}

// TestDeferredLoss checks that Losses returns the loss that Forward would have returned without
// DeferLoss, before and after the backward pass. DeferLoss has no effect outside of training.
func TestDeferredLoss(t *testing.T) {
	for _, k := range smallKinds {
		e := k.start(t, cpu.New(1), 0, device.FP32)
		b := e.every(0, 1)
		want := e.model.Forward(b, Pass{Train: true, Weight: 1}).Loss
		deferred := Pass{Train: true, Weight: 1, DeferLoss: true}
		out := e.model.Forward(b, deferred)
		loss := func() float64 {
			rows, parts := e.model.Losses()
			return meanLoss(rows.Floats(), parts)
		}
		before := loss()
		e.model.Backward(b, deferred, nil)
		if after := loss(); out.Loss != 0 || before != want || after != want {
			t.Errorf("%s: loss %v, then %v and %v, want 0, then %v", k.name, out.Loss, before, after, want)
		}
		deferred.Train = false
		if got := e.model.Forward(b, deferred).Loss; got != want {
			t.Errorf("%s: loss %v outside of training, want %v", k.name, got, want)
		}
	}
}
