//go:build cuda

package engine

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// stepDecision implements [device.StepDecision].
type stepDecision struct {
	device    *Device
	parts     int
	state     driver.Ptr // struct StepDecision of updates.cu
	sums      driver.Ptr // float64: of the squares of each part, then of losses
	hasLosses bool       // this step has losses
}

// stepDecisionState is struct StepDecision of updates.cu. The host writes only the count.
type stepDecisionState struct {
	_      uint64 // number of updates, written at the start of the struct
	result [2]float32
	rule   adamRule // or sgdFactors: both begin with the factors
}

// NewStepDecision allocates its memory until Close.
func (d *Device) NewStepDecision(parts int) device.StepDecision {
	defer d.enter("step_decision", parts).Leave()
	v := &stepDecision{device: d, parts: parts}
	var err error
	state := int64(unsafe.Sizeof(stepDecisionState{}))
	v.state, err = d.pool.Alloc(state)
	d.check(err)
	v.sums, err = d.pool.Alloc(int64(8 * (parts + 1)))
	d.check(err)
	d.submit(call{kind: clears, to: v.state, bytes: state})
	return v
}

// Count sets the number of updates so far.
func (v *stepDecision) Count(updates int64) {
	defer v.device.enter("count").Leave()
	v.device.flush()
	v.device.stage(v.state, binary.LittleEndian.AppendUint64(nil, uint64(updates)))
}

// Squares computes the sum of squares of a part.
func (v *stepDecision) Squares(part int, grad device.Tensor) {
	if part < 0 || part >= v.parts || grad.Len() == 0 {
		panic(fmt.Sprintf("engine: part %d of %d with %d elements", part, v.parts, grad.Len()))
	}
	defer v.device.enter("sum_squares", grad.Len()).Leave()
	v.device.sumPartials(v.sums+driver.Ptr(8*part), "sum_squares", floats(grad), 0, grad.Len())
}

// Losses sums losses in any order, to check whether they are finite.
func (v *stepDecision) Losses(rows device.Tensor) {
	d := v.device
	defer d.enter("sum", rows.Len()).Leave()
	d.args.Reset().Ptr(v.sums + driver.Ptr(8*v.parts)).Ptr(floats(rows)).Int64(int64(rows.Len())).Uint32(flag(v.hasLosses))
	d.launch("sum", blocks(1))
	v.hasLosses = true
}

// DecideSGD decides on an SGD update.
func (v *stepDecision) DecideSGD(most float64, f device.SGDFactors) {
	factors := sgdFactorsOf(f)
	decide(v, "decide_sgd", most, &factors)
}

// adamRule is struct AdamRule of updates.cu.
type adamRule struct {
	factors          adamFactors
	maxUpdates       uint32
	lr, beta1, beta2 float64
}

// DecideAdam decides on an Adam update.
func (v *stepDecision) DecideAdam(most float64, r device.AdamRule) {
	decide(v, "decide_adam", most, &adamRule{adamFactorsOf(r.Factors), r.MaxUpdates, r.LR, r.Beta1, r.Beta2})
}

// decide launches a decision with a rule, which differs from step to step.
func decide[T any](v *stepDecision, kernel string, most float64, rule *T) {
	d := v.device
	if !v.hasLosses {
		panic("engine: a decision without losses")
	}
	v.hasLosses = false
	defer d.enter(kernel, v.parts).Leave()
	at := graphParams(d, rule)
	d.args.Reset().Ptr(v.state).Ptr(v.sums).Int(v.parts).Double(most)
	driver.Struct(&d.args, rule)
	d.args.Ptr(at)
	d.launch(kernel, driver.Launch{Block: driver.Dim{X: 32}})
}

// factors returns the address of the factors of the decision.
func (v *stepDecision) factors() driver.Ptr {
	return v.state + driver.Ptr(unsafe.Offsetof(stepDecisionState{}.rule))
}

// SGD updates if the step is not skipped.
func (v *stepDecision) SGD(value, grad, buffer device.Tensor, decays bool) {
	v.device.launchSGD(value, grad, buffer, sgdFactors{}, v.factors(), decays)
}

// Adam updates if the step is not skipped.
func (v *stepDecision) Adam(value, grad, average, squares device.Tensor, decays bool) {
	v.device.launchAdam(value, grad, average, squares, adamFactors{}, v.factors(), decays)
}

// Result returns the result of the decision.
func (v *stepDecision) Result() device.Tensor {
	return tensor(device.Float32, v.state+driver.Ptr(unsafe.Offsetof(stepDecisionState{}.result)), 2)
}
