package trainer

import "sync/atomic"

// The phases of a training, as others are told.
const (
	phaseLoading    = "loading"
	phaseTraining   = "training"
	phaseEvaluating = "evaluating"
	phaseSaving     = "saving"
)

// Progress is how far this rank has come, for other goroutines to look at any time.
type Progress struct {
	step  atomic.Int64
	done  atomic.Uint64
	phase atomic.Pointer[string]
}

// Now is the optimiser steps done, what the trainer is at, and a count that changes
// with every batch, which is 0 before the first.
func (p *Progress) Now() (step int, phase string, done uint64) {
	phase = phaseLoading
	if at := p.phase.Load(); at != nil {
		phase = *at
	}
	return int(p.step.Load()), phase, p.done.Load()
}

// enter begins a phase, and returns what ends it: the one before goes on.
func (p *Progress) enter(phase string) (leave func()) {
	before := p.phase.Swap(&phase)
	return func() { p.phase.Store(before) }
}
