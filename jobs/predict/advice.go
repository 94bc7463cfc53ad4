package predict

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/plan"
)

// advice returns recommendations, with reasons.
func (p *predictor) advice(a *Prediction) []string {
	best, fits, tight := plan.Fit(p.memoryOf, a.MemoryLimit)
	out := []string{p.adviseStrategy(a, best, fits, tight)}
	if line := p.adviseRanks(a, best); fits && line != "" {
		out = append(out, line)
	}
	if has, kernels := cpu.HasBF16(); p.gpu == nil && (p.Here || p.Measure) {
		if line := adviseBF16(a.Precision, has, kernels); line != "" {
			out = append(out, line)
		}
	}
	if step := a.Ranks * a.Batch * a.Accumulate; a.Samples > 0 && step > a.Samples {
		out = append(out, fmt.Sprintf("fewer ranks or a smaller batch: a step has %d samples, but the data set has only %d", step, a.Samples))
	}
	return out
}

func (p *predictor) adviseStrategy(a *Prediction, best ddp.Strategy, fits, tight bool) string {
	need := format.Bytes(p.memoryOf(best).Total())
	limit := format.Bytes(a.MemoryLimit)
	switch {
	case !fits:
		line := fmt.Sprintf("no strategy fits: even %s needs %s of %s on %s", best, need, limit, format.Count(a.Ranks, "rank"))
		for ranks := 2 * a.Ranks; ranks <= maxTableRanks; ranks *= 2 {
			if p.work.Memory(best, p.training.Element, ranks, p.program).Total() <= plan.Usable(a.MemoryLimit) {
				return line + fmt.Sprintf("; it fits on %d", ranks)
			}
		}
		return line + "; more ranks do not help: use a smaller train.batch with train.accumulate, or a smaller model"
	case tight:
		return fmt.Sprintf("%s needs the least memory, but the fit is tight: %s of %s leaves less than %.0f%%, so ranks may run out of memory; a smaller train.batch with train.accumulate needs less",
			best, need, limit, 100*plan.SpareFraction)
	case a.MemoryLimit == 0:
		return fmt.Sprintf("%s, if a rank has %s: the memory per rank is unknown (set slurm.mem or --memory)", best, need)
	case best == ddp.DDP:
		return fmt.Sprintf("ddp: the simplest strategy, and it fits: %s of %s", need, limit)
	}
	return fmt.Sprintf("%s: the simplest strategy that fits, with %s of %s; %s would need %s",
		best, need, limit, best-1, format.Bytes(p.memoryOf(best-1).Total()))
}

// adviseRanks recommends a number of ranks for the strategy best. It returns "" if the table
// has only one rank.
func (p *predictor) adviseRanks(a *Prediction, best ddp.Strategy) string {
	t, with := p.training, ""
	if t.Strategy != best {
		t.Strategy, with = best, fmt.Sprintf("with %s, ", best)
	}
	var steps []plan.Step
	for _, n := range p.rankNumbers() {
		steps = append(steps, plan.Predict(p.work, t, p.machine, n))
	}
	last := steps[len(steps)-1]
	if last.Ranks == 1 {
		return ""
	}
	const percent = 100 * plan.GoodEfficiency
	good, more := plan.MaxEfficientRanks(steps)
	if !more {
		return fmt.Sprintf("%sup to %s: efficiency stays above %.0f%%; a step then has %d samples", with, format.Count(last.Ranks, "rank"), percent, last.Ranks*a.Batch*a.Accumulate)
	}
	line := fmt.Sprintf("%sat most %s: with more, efficiency falls below %.0f%%", with, format.Count(good, "rank"), percent)
	if good == 0 {
		line = fmt.Sprintf("%sfewer than %s: efficiency is below %.0f%%", with, format.Count(steps[0].Ranks, "rank"), percent)
	}
	own := plan.Predict(p.work, t, p.machine, a.Ranks)
	if own.Efficiency >= plan.GoodEfficiency {
		return line
	}
	line += fmt.Sprintf("; with the job's %d ranks, it is %.0f%%", a.Ranks, 100*own.Efficiency)
	if shared := own.Compute / plan.Predict(p.work, t, p.machine, 1).Compute; shared > 1.01 {
		return line + ": the ranks share cores"
	}
	if accumulate, ok := plan.SuggestAccumulate(p.work, t, p.machine, a.Ranks); ok {
		return line + fmt.Sprintf(": the batch is too small for its communication; train.accumulate = %d reaches 80%%, and a larger train.batch may also help", accumulate)
	}
	return line + ": communication takes too long for the batch size; a larger train.batch may help"
}

// adviseBF16 recommends fp32 for a job in bf16 on a CPU that has no instructions for it. It returns
// "" for other jobs.
func adviseBF16(precision jobs.Precision, hasBF16 bool, kernels string) string {
	if precision != jobs.PrecisionBF16 || hasBF16 {
		return ""
	}
	return fmt.Sprintf("train.precision = \"fp32\": without bf16 instructions (AVX512_BF16), such as on this machine (%s), bf16 is slower", kernels)
}
