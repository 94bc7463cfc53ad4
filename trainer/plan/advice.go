package plan

// GoodEfficiency is the part of the ideal speed below which more ranks are a waste.
const GoodEfficiency = 0.8

// Fit returns the simplest strategy whose memory is within the limit, in bytes; 0 is
// no limit. If there is none it returns the last one and false.
func Fit(memory func(Strategy) Memory, limit float64) (Strategy, bool) {
	for _, s := range Strategies() {
		if limit == 0 || memory(s).Total() <= limit {
			return s, true
		}
	}
	return ZeRO3, false
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
