package main

import (
	"fmt"
	"strings"
)

// render writes the tables of training on several ranks.
func (p *parallel) render(b *strings.Builder) {
	fmt.Fprintf(b, "## Data parallel\nSteps in fp32 on %d ranks of one thread each, on as many cores, with gradients averaged over ranks, beside PyTorch's DistributedDataParallel over Gloo, in turns, in %s, on %s. Rates are of all ranks, the median of the rounds' medians.\n\n",
		parallelRanks, rounds(p.Rounds), p.Date)
	header(b, "model", "", "ddpbatch", "PyTorch", "ratio", "target", "met")
	for _, r := range p.Rows {
		ours, theirs := middle(r.Ours.PerSecond), middle(r.Theirs.PerSecond)
		why := (&row{Ours: r.Ours, Theirs: r.Theirs}).otherWork()
		ratio := times(ours / theirs)
		if why != "" {
			ratio = "not compared: " + why
		}
		cells := []string{r.Model, r.Unit + "/s", whole(ours), whole(theirs), ratio}
		line(b, append(cells, r.target().cells(ours/theirs, why == "", times)...)...)
	}
	b.WriteString("\nScaling is the rate of all ranks over that of one rank alone, measured in the same rounds. Communication is that of a step on rank 0, waiting for the other included, and hidden is the part of it that passed during computation.\n\n")
	header(b, "model", "one rank", "scaling", "target", "met", "communication", "hidden", "target", "met")
	for _, r := range p.Rows {
		alone, scaling, hidden := middle(r.Alone.PerSecond), middle(r.Ours.PerSecond)/middle(r.Alone.PerSecond), middle(r.Hidden)
		scales, hides := r.ownTargets()
		cells := append([]string{r.Model, whole(alone) + " " + r.Unit + "/s", times(scaling)}, scales.cells(scaling, true, times)...)
		cells = append(cells, milliseconds(middle(r.Communication)), percent(hidden))
		line(b, append(cells, hides.cells(hidden, true, percent)...)...)
	}
	b.WriteString("\n`ddpbatch bench step --ranks 2` prints our side alone.\n\n")
}

// target is that of our rate over PyTorch's.
func (r *parallelRow) target() *target {
	if r.Model == "mlp" {
		return atLeast(2)
	}
	return atLeast(1.4)
}

// ownTargets are those of the scaling and of the hidden part.
func (r *parallelRow) ownTargets() (scaling, hidden *target) {
	if r.Model == "mlp" {
		return nil, nil
	}
	return atLeast(1.8), atLeast(0.8)
}
