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
	scalars   int
	state     driver.Ptr // struct StepDecision of updates.cu
	loss      driver.Ptr // float64: the loss of this step
	hasLosses bool       // loss includes a micro-batch of this step
	reduced   bool       // the state has the sums of this step
}

// stepDecisionState is struct StepDecision of updates.cu. The host writes only the count.
type stepDecisionState struct {
	_      uint64  // number of updates, written at the start of the struct
	_      float64 // norm of the gradients
	result [2 + device.MaxScalars]float32
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

// NewStepDecision creates a step decision. Close of the device frees its memory.
func (d *Device) NewStepDecision(scalars int) device.StepDecision {
	if scalars < 1 || scalars > device.MaxScalars {
		panic(fmt.Sprintf("engine: %d scalars, want 1 to %d", scalars, device.MaxScalars))
	}
	defer d.enter("step_decision", scalars).Leave()
	v := &stepDecision{device: d, scalars: scalars}
	var err error
	state := int64(unsafe.Sizeof(stepDecisionState{}))
	v.state, err = d.pool.Alloc(state)
	d.check(err)
	v.loss, err = d.pool.Alloc(8)
	d.check(err)
	d.submit(call{kind: clears, to: v.state, bytes: state})
	return v
}

// AddLoss adds the loss of a micro-batch, with the rows in any order.
func (v *stepDecision) AddLoss(loss, rows device.Tensor, parts int, weight float64) {
	d := v.device
	sameLength("loss", loss.Len(), 1)
	defer d.enter("add_loss", rows.Len()).Leave()
	d.args.Reset().Ptr(v.loss).Ptr(floats(loss)).Ptr(floats(rows)).Int64(int64(rows.Len())).Double(float64(parts)).Double(weight).Uint32(flag(v.hasLosses))
	d.launch("add_loss", blocks(1))
	v.hasLosses = true
}

// Reduce sums the records of all ranks.
func (v *stepDecision) Reduce(records device.Tensor) {
	d, width := v.device, 1+v.scalars
	ranks := records.Len() / width
	sameLength("reduce scalars", records.Len(), ranks*width)
	defer d.enter("reduce_scalars", records.Len()).Leave()
	d.args.Reset().Ptr(v.state).Ptr(typed(records, device.Float64)).Int64(int64(ranks)).Uint32(uint32(width))
	d.launch("reduce_scalars", driver.Launch{Block: driver.Dim{X: 32}})
	v.hasLosses, v.reduced = false, true
}

// Count sets the number of updates so far.
func (v *stepDecision) Count(updates int64) {
	defer v.device.enter("count").Leave()
	v.device.flush()
	v.device.stage(v.state, binary.LittleEndian.AppendUint64(nil, uint64(updates)))
	v.device.before = v.device.last
}

// Decide decides on the updates of a step. The factors differ from step to step.
func (v *stepDecision) Decide(maxNorm float64, list []device.GroupFactors) {
	d := v.device
	if !v.reduced {
		panic("engine: a decision without the sums of the ranks")
	}
	if len(list) == 0 || len(list) > device.MaxGroups {
		panic(fmt.Sprintf("engine: a decision about %d groups, want 1 to %d", len(list), device.MaxGroups))
	}
	v.reduced = false
	var g groups
	for i, f := range list {
		g[i] = groupFactors{factorsOf(f.Factors), 0, f.LR, f.Beta1, f.Beta2}
		if f.BiasCorrected {
			g[i].maxUpdates = f.MaxUpdates
		}
	}
	defer d.enter("decide", len(list)).Leave()
	at := graphParams(d, &g)
	d.args.Reset().Ptr(v.state).Double(maxNorm).Int(len(list))
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
	return Tensor(device.Float32, v.state+driver.Ptr(unsafe.Offsetof(stepDecisionState{}.result)), 2+v.scalars)
}
