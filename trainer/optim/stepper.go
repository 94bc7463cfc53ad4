package optim

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// A stepper holds the options of an optimizer and counts its steps.
type stepper struct {
	Options
	device    device.Device
	params    []*nn.Param
	steps     int64                 // completed steps, at most lastStep
	countedBy device.StepDecision   // the decision to which steps was passed
	factors   []device.GroupFactors // by group, for the step in progress
}

// Kind returns the kind of the options.
func (s *stepper) Kind() string { return s.Options.Kind }

// Rate returns LR.
func (s *stepper) Rate() float64 { return s.LR }

// SetRate sets LR.
func (s *stepper) SetRate(lr float64) { s.LR = lr }

// CountStep counts a step.
func (s *stepper) CountStep() { s.steps = min(s.steps+1, lastStep) }

func (s *stepper) checkParams(params []*nn.Param) {
	if len(params) != len(s.params) {
		panic(fmt.Sprintf("optim: step of %d parameters, made for %d", len(params), len(s.params)))
	}
}

// start counts a step and completes its factors.
func (s *stepper) start(params []*nn.Param, gradScale float32) {
	s.checkParams(params)
	next := s.steps + 1
	s.CountStep()
	s.countedBy = nil
	for i, g := range s.factors {
		s.factors[i].Factors = g.At(next, gradScale)
	}
}

// startAsync enqueues the decision about a step on the device.
func (s *stepper) startAsync(params []*nn.Param, d device.StepDecision, maxNorm float64) {
	s.checkParams(params)
	if s.countedBy != d {
		d.Count(s.steps)
		s.countedBy = d
	}
	d.Decide(maxNorm, s.factors)
}
