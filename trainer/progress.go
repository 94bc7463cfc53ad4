package trainer

import "sync/atomic"

// The phases of a training run, as reported to the launcher.
const (
	phaseLoading    = "loading"
	phaseTraining   = "training"
	phaseEvaluating = "evaluating"
	phaseSaving     = "saving"
)

// Progress is this rank's progress. Other goroutines may read it at any time.
type Progress struct {
	step  atomic.Int64
	done  atomic.Uint64
	phase atomic.Pointer[string]
}

// Now returns the number of completed optimizer steps, the current phase, and a count that changes
// with every batch. The count is 0 before the first batch.
func (p *Progress) Now() (step int, phase string, done uint64) {
	phase = phaseLoading
	if at := p.phase.Load(); at != nil {
		phase = *at
	}
	return int(p.step.Load()), phase, p.done.Load()
}

// enter begins a phase. The function that it returns restores the previous phase.
func (p *Progress) enter(phase string) (leave func()) {
	before := p.phase.Swap(&phase)
	return func() { p.phase.Store(before) }
}
