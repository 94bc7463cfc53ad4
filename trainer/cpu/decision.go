package cpu

import (
	"math"
	"slices"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// stepDecision implements [device.StepDecision]. Its results are available immediately.
type stepDecision struct {
	device    *Device
	count     int64
	loss      float64 // of this step
	hasLosses bool    // loss includes a micro-batch of this step
	sums      []float64
	updates   bool
	result    []float32
	factors   []device.Factors // by group
}

// NewStepDecision returns a decision that is computed on the calling thread.
func (d *Device) NewStepDecision(scalars int) device.StepDecision {
	return &stepDecision{device: d, sums: make([]float64, 1+scalars), result: make([]float32, 2+scalars)}
}

// AddLoss adds the loss of a micro-batch.
func (v *stepDecision) AddLoss(loss, rows device.Tensor, parts int, weight float64) {
	if !v.hasLosses {
		v.loss, v.hasLosses = 0, true
	}
	if weight != 0 {
		total := 0.0
		for _, row := range rows.Floats() {
			total += float64(row)
		}
		v.loss += weight * (total / float64(parts))
	}
	loss.Floats()[0] = float32(v.loss)
}

// Reduce sums the records of all ranks.
func (v *stepDecision) Reduce(records device.Tensor) {
	clear(v.sums)
	for record := range slices.Chunk(records.Doubles(), len(v.sums)) {
		for i, x := range record {
			v.sums[i] += x
		}
	}
	v.sums[0] = math.Sqrt(v.sums[0])
	for i, x := range v.sums {
		v.result[1+i] = float32(x)
	}
	v.hasLosses = false
}

// Count sets the number of updates so far.
func (v *stepDecision) Count(updates int64) { v.count = updates }

// decide decides whether to update, and returns the factor for the gradients.
func (v *stepDecision) decide(most float64) (scale float32) {
	norm, loss := v.sums[0], float64(v.result[2])
	v.updates, v.result[0] = norm-norm == 0 && loss-loss == 0, 0
	if v.updates {
		v.count++
		v.result[0] = 1
	}
	if most > 0 {
		if scale := float32(most / (norm + device.ClipEps)); scale < 1 {
			return scale
		}
	}
	return 1
}

// Decide decides on the updates of a step.
func (v *stepDecision) Decide(maxNorm float64, groups []device.GroupFactors) {
	scale := v.decide(maxNorm)
	v.factors = v.factors[:0]
	for _, g := range groups {
		v.factors = append(v.factors, g.At(v.count, scale))
	}
}

// Update updates if the step is not skipped.
func (v *stepDecision) Update(r device.Rule, a device.Arrays, group int) {
	if v.updates {
		v.device.Update(r, a, v.factors[group])
	}
}

// Result returns the result of the decision.
func (v *stepDecision) Result() device.Tensor { return device.Host(v.result) }

// reading implements [device.Reading] with a copy.
type reading struct{ values []float32 }

// NewReading returns a reading that copies immediately.
func (d *Device) NewReading() device.Reading { return &reading{} }

// Begin copies the tensor.
func (r *reading) Begin(src device.Tensor) { r.values = append(r.values[:0], src.Floats()...) }

// Floats returns the copy.
func (r *reading) Floats() []float32 { return r.values }
