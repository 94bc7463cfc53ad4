package plan

import "github.com/ddpbatch/ddpbatch/trainer/ddp"

// GoodEfficiency is the minimum efficiency for which more ranks are recommended.
const GoodEfficiency = 0.8

// SpareFraction is the fraction of memory that a plan leaves free. Computed and measured memory of
// processes have differed by less than this, allocators have gaps between tensors, and a GPU's
// libraries use some memory, NCCL for each connection.
const SpareFraction = 0.1

// Usable returns a memory limit minus the spare fraction.
func Usable(limit float64) float64 { return (1 - SpareFraction) * limit }

// Fit returns the simplest strategy whose memory fits in the usable part of the limit, in bytes; 0
// means no limit. If none fits, it returns the strategy that needs the least memory. fits reports
// whether the strategy's memory is within the limit, and tight whether it fits only without the spare
// fraction.
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

// MaxEfficientRanks returns the largest number of ranks up to which every step, in ascending order,
// reaches [GoodEfficiency]. More reports whether larger steps exist that do not reach it.
func MaxEfficientRanks(steps []Step) (ranks int, more bool) {
	for _, s := range steps {
		if s.Efficiency < GoodEfficiency {
			return ranks, true
		}
		ranks = s.Ranks
	}
	return ranks, false
}

// SuggestAccumulate returns the smallest multiple of the micro-batches per step, by a power of two
// up to 1024, with which this number of ranks reaches [GoodEfficiency], if one exists.
func SuggestAccumulate(w Work, t Training, m Machine, ranks int) (accumulate int, ok bool) {
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
