package optim

import (
	"fmt"
	"math"
	"slices"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// A rule defines an elementwise optimizer.
type rule struct {
	update device.Rule
	// state returns the name prefixes of the state arrays, at most two. Each has one value per
	// parameter element.
	state func(o *Options) []string
	// counts reports that the number of steps is part of the saved state.
	counts bool
	// check returns an error for invalid options. Learning rate and weight decay are already
	// checked.
	check func(o *Options) error
	// factors returns the inputs from which the device computes the factors of any step.
	factors func(o *Options, weightDecay float64) device.GroupFactors
}

// rules holds the elementwise rules by kind.
var rules = map[string]rule{KindSGD: sgdRule, KindAdam: adamRule, KindAdamW: adamWRule, KindLion: lionRule}

// elementwise is an optimizer that updates each element independently.
type elementwise struct {
	stepper
	rule     rule
	groups   []Group
	segments []segment
	state    [][]buffer // by array of the state and parameter
}

// checkOptions checks the options of a rule.
func (r rule) checkOptions(d device.Device, o *Options) error {
	if err := check(setting{"learning rate", o.LR}, setting{"weight decay", o.WeightDecay}); err != nil {
		return err
	}
	if !d.HasRule(r.update) {
		return fmt.Errorf("%s does not support the update rule %q", d.Name(), r.update)
	}
	return r.check(o)
}

func newElementwise(d device.Device, params []*nn.Param, o Options, r rule) (*elementwise, error) {
	if err := r.checkOptions(d, &o); err != nil {
		return nil, err
	}
	e := &elementwise{stepper: stepper{Options: o, device: d, params: params}, rule: r}
	for _, prefix := range r.state(&o) {
		e.state = append(e.state, newBuffers(d, prefix, params))
	}
	e.SetGroups()
	return e, nil
}

// SetGroups sets the groups.
func (e *elementwise) SetGroups(groups ...Group) {
	if len(groups) > maxGroups {
		panic(fmt.Sprintf("optim: %d groups, want at most %d", len(groups), maxGroups))
	}
	e.groups = slices.Clone(groups)
	e.segments = splitByGroup(e.params, groups)
	e.factors = make([]device.GroupFactors, 1+len(groups))
}

// setFactors sets the factors of the groups for a step, except for the fields that depend on the
// number of the step and on the gradients.
func (e *elementwise) setFactors() {
	e.factors[0] = e.rule.factors(&e.Options, e.WeightDecay)
	for i, g := range e.groups {
		e.factors[i+1] = e.rule.factors(&e.Options, g.WeightDecay)
	}
}

// arrays returns the arrays that the update of a segment reads and writes.
func (e *elementwise) arrays(s segment, p *nn.Param) device.Arrays {
	a := device.Arrays{Value: p.Data, Grad: p.Grad, Rounded: p.Rounded}
	for i, buffers := range e.state {
		a.State[i] = buffers[s.part].data
	}
	return a.Slice(s.first, s.end)
}

// Step updates Data of all parameters with their Grad times gradScale.
func (e *elementwise) Step(params []*nn.Param, gradScale float32) {
	e.setFactors()
	e.start(params, gradScale)
	for _, s := range e.segments {
		e.device.Update(e.rule.update, e.arrays(s, params[s.part]), e.factors[s.group].Factors)
	}
}

// StepAsync enqueues Step on the device, which skips the update unless loss and gradients are
// finite.
func (e *elementwise) StepAsync(params []*nn.Param, d device.StepDecision, maxNorm float64) {
	e.setFactors()
	e.startAsync(params, d, maxNorm)
	for _, s := range e.segments {
		d.Update(e.rule.update, e.arrays(s, params[s.part]), s.group)
	}
}

// State returns for each parameter its state, named with the prefixes of the rule, and at the end,
// for rules that count, "step", the number of completed steps. On the host, the Data of the arrays
// is the optimizer's own memory: it changes at the next step.
func (e *elementwise) State() State { return e.StateBy(defaultRead(e.device)) }

// StateBy is like State, but reads arrays with read.
func (e *elementwise) StateBy(read Read) State {
	var list []Tensor
	for i := range e.params {
		for _, buffers := range e.state {
			list = append(list, buffers[i].tensor(read))
		}
	}
	if e.rule.counts {
		list = append(list, Tensor{stepName, nil, []float32{float32(e.steps)}})
	}
	return State{e.Kind(), e.steps > 0 && len(list) > 0, list}
}

// Restore copies the state of an optimizer of the same kind for the same parameters, with tensors
// in any order. It returns an error and changes nothing if the kind differs, if a tensor is
// missing, unknown, or has a different shape, or if the number of steps is invalid. SGD accepts a
// state without a kind: it was the only kind before states recorded it.
func (e *elementwise) Restore(from State) error {
	if from.Kind == "" && e.Kind() == KindSGD {
		from.Kind = KindSGD
	}
	own := slices.Concat(e.state...)
	steps, err := restore(e.device, e.Kind(), own, e.rule.counts, from)
	if err != nil {
		return err
	}
	e.steps, e.countedBy = steps, nil
	return nil
}

// restore copies a state to an optimizer's buffers and returns the number of steps. If the state has
// no counter, it returns 1 for an initialized state, otherwise 0: only the first step is special.
func restore(d device.Device, kind string, own []buffer, counts bool, from State) (steps int64, err error) {
	all := own
	if counts {
		all = append(slices.Clone(own), buffer{stepName, nil, device.Host(make([]float32, 1))})
	}
	given, err := match(kind, all, from)
	if err != nil {
		return 0, err
	}
	if from.Initialized {
		steps = 1
	}
	if counts {
		done := float64(given[stepName].Data[0])
		if !(done >= 0 && done <= lastStep) || done != math.Trunc(done) {
			return 0, fmt.Errorf("restore optimizer: %q is %v, want an integer from 0 to %d", stepName, done, lastStep)
		}
		if from.Initialized != (done > 0) {
			return 0, fmt.Errorf("restore optimizer: %q is %v in a state with initialized %t", stepName, done, from.Initialized)
		}
		steps = int64(done)
	}
	for _, b := range own {
		d.Write(b.data, given[b.name].Data)
	}
	return steps, nil
}
