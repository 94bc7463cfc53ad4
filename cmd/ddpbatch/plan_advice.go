package main

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/plan"
)

// advice says what to do, and why.
func (l *planner) advice(a *planAnswer) []string {
	out := []string{l.adviseStrategy(a)}
	if line := l.adviseRanks(a); line != "" {
		out = append(out, line)
	}
	if step := a.Ranks * a.Batch * a.Accumulate; a.Samples > 0 && step > a.Samples {
		out = append(out, fmt.Sprintf("fewer ranks or a smaller batch: a step takes %d samples, and there are %d", step, a.Samples))
	}
	return out
}

func (l *planner) adviseStrategy(a *planAnswer) string {
	best, fits := plan.Fit(l.memory, a.MemoryLimit)
	need := gibibytes(l.memory(best).Total())
	limit := gibibytes(a.MemoryLimit)
	switch {
	case !fits:
		line := fmt.Sprintf("nothing fits: even %s needs %s of %s on %s", best, need, limit, count(a.Ranks, "rank"))
		for ranks := 2 * a.Ranks; ranks <= maxPlannedRanks; ranks *= 2 {
			if l.work.Memory(best, l.training.Element, ranks, l.half, l.program).Total() <= a.MemoryLimit {
				return line + fmt.Sprintf("; it fits on %d", ranks)
			}
		}
		return line + "; no number of ranks helps: use a smaller train.batch, with train.accumulate, or a smaller model"
	case a.MemoryLimit == 0:
		return fmt.Sprintf("%s, if a rank has %s: how much it has is not known (slurm.mem or --memory)", best, need)
	case best == plan.DDP:
		return fmt.Sprintf("ddp: the simplest, and it fits: %s of %s", need, limit)
	}
	return fmt.Sprintf("%s: the simplest that fits, with %s of %s; %s would need %s",
		best, need, limit, best-1, gibibytes(l.memory(best-1).Total()))
}

func (l *planner) adviseRanks(a *planAnswer) string {
	last := a.Steps[len(a.Steps)-1]
	if last.Ranks == 1 {
		return ""
	}
	steps := make([]plan.Step, len(a.Steps))
	for i, s := range a.Steps {
		steps[i] = s.Step
	}
	const percent = 100 * plan.GoodEfficiency
	good, more := plan.Scales(steps)
	if !more {
		return fmt.Sprintf("up to %s: efficiency stays above %.0f%%; a step takes %d samples then", count(last.Ranks, "rank"), percent, last.Ranks*a.Batch*a.Accumulate)
	}
	line := fmt.Sprintf("at most %s: with more, efficiency falls below %.0f%%", count(good, "rank"), percent)
	if good == 0 {
		line = fmt.Sprintf("fewer than %s: efficiency is below %.0f%%", count(steps[0].Ranks, "rank"), percent)
	}
	own := plan.Predict(l.work, l.training, l.machine, a.Ranks)
	if own.Efficiency >= plan.GoodEfficiency {
		return line
	}
	line += fmt.Sprintf("; the job's %d reach %.0f%%", a.Ranks, 100*own.Efficiency)
	if shared := own.Compute / plan.Predict(l.work, l.training, l.machine, 1).Compute; shared > 1.01 {
		return line + ": they share cores"
	}
	if accumulate, ok := plan.MoreWork(l.work, l.training, l.machine, a.Ranks); ok {
		return line + fmt.Sprintf(": a batch is small beside its messages; train.accumulate = %d reaches 80%%, and so may a larger batch", accumulate)
	}
	return line + ": messages take too long beside so little work; a larger train.batch may help"
}
