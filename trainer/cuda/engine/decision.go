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
	groups groups
}

// groups is struct Groups of updates.cu.
type groups [device.MaxGroups]groupFactors

// groupFactors is struct GroupFactors of updates.cu.
type groupFactors struct {
	factors          factors
	maxUpdates       uint32 // 0: no bias correction
	lr, beta1, beta2 float64
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

// Decide decides on the updates of a step. The factors differ from step to step.
func (v *stepDecision) Decide(maxNorm float64, list []device.GroupFactors) {
	d := v.device
	if !v.hasLosses {
		panic("engine: a decision without losses")
	}
	if len(list) == 0 || len(list) > device.MaxGroups {
		panic(fmt.Sprintf("engine: a decision about %d groups, want 1 to %d", len(list), device.MaxGroups))
	}
	v.hasLosses = false
	var g groups
	for i, f := range list {
		g[i] = groupFactors{factorsOf(f.Factors), 0, f.LR, f.Beta1, f.Beta2}
		if f.BiasCorrected {
			g[i].maxUpdates = f.MaxUpdates
		}
	}
	defer d.enter("decide", v.parts).Leave()
	at := graphParams(d, &g)
	d.args.Reset().Ptr(v.state).Ptr(v.sums).Int(v.parts).Double(maxNorm).Int(len(list))
	driver.Struct(&d.args, &g)
	d.args.Ptr(at)
	d.launch("decide", driver.Launch{Block: driver.Dim{X: 32}})
}

// Update updates if the step is not skipped.
func (v *stepDecision) Update(r device.Rule, a device.Arrays, group int) {
	if group < 0 || group >= device.MaxGroups {
		panic(fmt.Sprintf("engine: group %d of at most %d", group, device.MaxGroups))
	}
	at := unsafe.Offsetof(stepDecisionState{}.groups) + uintptr(group)*unsafe.Sizeof(groupFactors{})
	v.device.launchUpdate(r, a, factors{}, v.state+driver.Ptr(at))
}

// Result returns the result of the decision.
func (v *stepDecision) Result() device.Tensor {
	return tensor(device.Float32, v.state+driver.Ptr(unsafe.Offsetof(stepDecisionState{}.result)), 2)
}
