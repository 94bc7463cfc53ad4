//go:build cuda

package engine

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// verdict implements [device.Verdict].
type verdict struct {
	device *Device
	parts  int
	state  driver.Ptr // struct Verdict of updates.cu
	sums   driver.Ptr // float64: of the squares of each part, then of losses
	begun  bool       // this step has losses
}

// verdictState is struct Verdict of updates.cu. The host writes only the count.
type verdictState struct {
	_    uint64 // number of updates, written at the start of the struct
	told [2]float32
	rule adamRule // or sgdFactors: both begin with the factors
}

// NewVerdict allocates its memory until Close.
func (d *Device) NewVerdict(parts int) device.Verdict {
	defer d.enter("verdict", parts).Leave()
	v := &verdict{device: d, parts: parts}
	var err error
	state := int64(unsafe.Sizeof(verdictState{}))
	v.state, err = d.pool.Alloc(state)
	d.check(err)
	v.sums, err = d.pool.Alloc(int64(8 * (parts + 1)))
	d.check(err)
	d.do(call{kind: clears, to: v.state, bytes: state})
	return v
}

// Count sets the number of updates so far.
func (v *verdict) Count(updates int64) {
	defer v.device.enter("count").Leave()
	v.device.flush()
	v.device.stage(v.state, binary.LittleEndian.AppendUint64(nil, uint64(updates)))
}

// Squares computes the sum of squares of a part.
func (v *verdict) Squares(part int, grad device.Tensor) {
	if part < 0 || part >= v.parts || grad.Len() == 0 {
		panic(fmt.Sprintf("engine: part %d of %d with %d elements", part, v.parts, grad.Len()))
	}
	defer v.device.enter("sum_squares", grad.Len()).Leave()
	v.device.addUp(v.sums+driver.Ptr(8*part), "sum_squares", floats(grad), 0, grad.Len())
}

// Losses sums losses in any order, to check whether they are finite.
func (v *verdict) Losses(rows device.Tensor) {
	d := v.device
	defer d.enter("sum", rows.Len()).Leave()
	d.args.Reset().Ptr(v.sums + driver.Ptr(8*v.parts)).Ptr(floats(rows)).Int64(int64(rows.Len())).Uint32(flag(v.begun))
	d.launch("sum", blocks(1))
	v.begun = true
}

// DecideSGD decides on an SGD update.
func (v *verdict) DecideSGD(most float64, f device.SGDFactors) {
	factors := sgdFactorsOf(f)
	decide(v, "decide_sgd", most, &factors)
}

// adamRule is struct AdamRule of updates.cu.
type adamRule struct {
	factors          adamFactors
	most             uint32
	lr, beta1, beta2 float64
}

// DecideAdam decides on an Adam update.
func (v *verdict) DecideAdam(most float64, r device.AdamRule) {
	decide(v, "decide_adam", most, &adamRule{adamFactorsOf(r.Factors), r.Most, r.LR, r.Beta1, r.Beta2})
}

// decide launches a decision with a rule, which differs from step to step.
func decide[T any](v *verdict, kernel string, most float64, rule *T) {
	d := v.device
	if !v.begun {
		panic("engine: a decision without losses")
	}
	v.begun = false
	defer d.enter(kernel, v.parts).Leave()
	at := live(d, rule)
	d.args.Reset().Ptr(v.state).Ptr(v.sums).Int(v.parts).Double(most)
	driver.Struct(&d.args, rule)
	d.args.Ptr(at)
	d.launch(kernel, driver.Launch{Block: driver.Dim{X: 32}})
}

// factors returns the address of the factors of the decision.
func (v *verdict) factors() driver.Ptr {
	return v.state + driver.Ptr(unsafe.Offsetof(verdictState{}.rule))
}

// SGD updates if the step is not skipped.
func (v *verdict) SGD(value, grad, buffer device.Tensor, decays bool) {
	v.device.sgd(value, grad, buffer, sgdFactors{}, v.factors(), decays)
}

// Adam updates if the step is not skipped.
func (v *verdict) Adam(value, grad, average, squares device.Tensor, decays bool) {
	v.device.adam(value, grad, average, squares, adamFactors{}, v.factors(), decays)
}

// Told returns the result of the decision.
func (v *verdict) Told() device.Tensor {
	return tensor(device.Float32, v.state+driver.Ptr(unsafe.Offsetof(verdictState{}.told)), 2)
}
