package plan

import "github.com/ddpbatch/ddpbatch/trainer/ddp"

// GoodEfficiency is the part of the ideal speed below which more ranks are a waste.
const GoodEfficiency = 0.8

// Spare is the part of the memory that a plan leaves alone: counts of memory have been
// within it of what processes were seen to hold, allocators do not fit tensors without
// gaps, and a GPU's libraries take some of it, NCCL for each connection.
const Spare = 0.1

// Usable is a limit of memory less what is to be left alone.
func Usable(limit float64) float64 { return (1 - Spare) * limit }

// Fit returns the simplest strategy whose memory is within what is usable of the limit,
// in bytes; 0 is no limit. If there is none it returns the one that takes least, and
// whether that is within the limit at all.
func Fit(memory func(ddp.Strategy) Memory, limit float64) (s ddp.Strategy, fits, tight bool) {
	least := ddp.DDP
	for _, s := range ddp.Strategies() {
		total := memory(s).Total()
		if limit == 0 || total <= Usable(limit) {
			return s, true, false
		}
		if total < memory(least).Total() {
			least = s
		}
	}
	fits = memory(least).Total() <= limit
	return least, fits, fits
}

// Scales returns the most ranks, of steps in rising order, up to which none is
// less efficient than [GoodEfficiency]; and whether there are more that are.
func Scales(steps []Step) (ranks int, more bool) {
	for _, s := range steps {
		if s.Efficiency < GoodEfficiency {
			return ranks, true
		}
		ranks = s.Ranks
	}
	return ranks, false
}

// MoreWork returns the smallest power of two times the training's micro-batches with
// which so many ranks reach [GoodEfficiency], if some up to 1024 do.
func MoreWork(w Work, t Training, m Machine, ranks int) (accumulate int, ok bool) {
	const most = 1024
	for factor := 2; factor <= most; factor *= 2 {
		more := t
		more.Accumulate = max(1, t.Accumulate) * factor
		if Predict(w, more, m, ranks).Efficiency >= GoodEfficiency {
			return more.Accumulate, true
		}
	}
	return 0, false
}
