package main

import (
	"fmt"
	"strings"
)

// render writes the tables of runs on several ranks.
func (p *parallel) render(b *strings.Builder) {
	fmt.Fprintf(b, "## Data parallel training\nSteps in fp32 on %d ranks with one thread and one core each, compared with PyTorch's DistributedDataParallel over Gloo. The two programs take turns, in %s, on %s. Throughput is the total of all ranks, the median of the rounds' medians.\n\n",
		parallelRanks, rounds(p.Rounds), p.Date)
	header(b, "Model", "Unit", "ddpbatch", "PyTorch", "Ratio", "Target", "Met")
	for _, r := range p.Rows {
		both := row{Ours: r.Ours, Theirs: r.Theirs, Compiled: r.Compiled}
		ours := middle(r.Ours.PerSecond)
		theirs, text := both.opponent(measure{of: func(s *side) []float64 { return s.PerSecond }, format: whole, more: true})
		why := both.otherWork()
		ratio := times(ours / theirs)
		if why != "" {
			ratio = "not compared: " + why
		}
		cells := []string{r.Model, r.Unit + "/s", whole(ours), text, ratio}
		line(b, append(cells, r.target().cells(ours/theirs, why == "", times)...)...)
	}
	b.WriteString("\nScaling is the throughput of all ranks divided by the throughput of a single rank, measured in the same rounds. Communication is the time per step on rank 0, including the wait for the other rank. \"Hidden\" is the fraction that overlaps computation.\n\n")
	header(b, "Model", "One rank", "Scaling", "Target", "Met", "Communication", "Hidden", "Target", "Met")
	for _, r := range p.Rows {
		alone, scaling, hidden := middle(r.Alone.PerSecond), middle(r.Ours.PerSecond)/middle(r.Alone.PerSecond), middle(r.Hidden)
		scales, hides := r.ownTargets()
		cells := append([]string{r.Model, whole(alone) + " " + r.Unit + "/s", times(scaling)}, scales.cells(scaling, true, times)...)
		cells = append(cells, milliseconds(middle(r.Communication)), percent(hidden))
		line(b, append(cells, hides.cells(hidden, true, percent)...)...)
	}
	b.WriteString("\n`ddpbatch bench step --ranks 2` measures ddpbatch only.\n\n")
}

// target returns the goal for ddpbatch's rate divided by PyTorch's.
func (r *parallelRow) target() *target {
	if r.Model == "mlp" {
		return atLeast(2)
	}
	return atLeast(1.4)
}

// ownTargets returns the goals for scaling and for the hidden fraction.
func (r *parallelRow) ownTargets() (scaling, hidden *target) {
	if r.Model == "mlp" {
		return nil, nil
	}
	return atLeast(1.8), atLeast(0.8)
}
