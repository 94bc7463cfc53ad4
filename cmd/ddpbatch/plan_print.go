package main

import (
	"fmt"
	"math"
	"strconv"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/jobs/predict"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/plan"
)

// printPlan prints the answer as text and tables.
func (p *program) printPlan(a *predict.Prediction) {
	size := fmt.Sprintf("%d samples", a.Ranks*a.Batch*a.Accumulate)
	unit, units := "SAMPLES/S", func(s predict.Step) float64 { return s.SamplesPerSecond }
	if a.Tokens > 0 {
		size += fmt.Sprintf(" of %d tokens", a.Tokens)
		unit, units = "TOKENS/S", func(s predict.Step) float64 { return s.TokensPerSecond }
	}
	p.printf("%s: %s with %d parameters, %s, in %s on %s\n", a.Name, a.Model, a.Parameters, a.Strategy, a.Precision, a.Device)
	p.wrapf(2, "a step: %s on %s; %s per rank in %s", size, format.Count(a.Ranks, "rank"), formatMetric(a.FLOP, "FLOP"), microBatches(a.Accumulate))

	p.printf("\n")
	var rows [][]string
	for _, g := range a.Layers {
		rows = append(rows, []string{g.Kind, fmt.Sprint(g.Params), fmt.Sprintf("%.1f%%", 100*float64(g.Params)/float64(a.Parameters))})
	}
	p.table([]string{"LAYERS", "PARAMETERS", "SHARE"}, rows)

	p.printf("\n")
	rows = nil
	for _, s := range ddp.Strategies() {
		m, ok := a.Memory[s.String()]
		if !ok {
			continue // the optimizer does not support it
		}
		rows = append(rows, []string{
			s.String(), format.Bytes(m.Weights), format.Bytes(m.Gradients), format.Bytes(m.Optimizer), format.Bytes(m.Activations),
			format.Bytes(m.Transient + m.Other), format.Bytes(m.Total), fits(m),
		})
	}
	p.table([]string{"MEMORY", "WEIGHTS", "GRADIENTS", "OPTIMIZER", "ACTIVATIONS", "OTHER", "TOTAL", "FITS"}, rows)
	if a.MemoryLimit > 0 {
		p.printf("of %s: %s\n", format.Bytes(a.MemoryLimit), a.Limit)
	}

	p.printf("\n")
	rows = nil
	for _, s := range a.Steps {
		rows = append(rows, []string{
			fmt.Sprint(s.Ranks), fmt.Sprint(s.Nodes), format.Seconds(s.Seconds), formatRate(units(s)), fmt.Sprintf("%.0f%%", 100*s.Efficiency),
			format.Seconds(s.Exposed), format.Bytes(s.Sent), s.Step.Algorithm,
		})
	}
	p.table([]string{"RANKS", "NODES", "STEP", unit, "EFFICIENCY", "WAITING", "SENT", "ALGORITHM"}, rows)

	p.printf("\n")
	for _, line := range a.Recommended {
		p.wrapf(2, "recommended: %s", line)
	}
	for _, line := range a.Notes {
		p.wrapf(2, "assumed: %s", line)
	}
	if a.GPUStep != nil {
		p.printGPUStep(a.GPUStep)
	}
}

// printGPUStep prints the speed model of a step on a GPU.
func (p *program) printGPUStep(s *predict.GPUStep) {
	row := func(name string, l plan.Launches) []string {
		return []string{name, fmt.Sprint(l.Launches), fmt.Sprintf("%.2f", l.FLOP/1e12), fmt.Sprintf("%.2f", l.Bytes/1e9), fmt.Sprintf("%.3f", l.Seconds*1e3)}
	}
	var rows [][]string
	for _, k := range s.Kernels {
		rows = append(rows, row(k.Kernel, k))
	}
	names := map[plan.Class]string{plan.Matmul: "all matrix multiplications", plan.Matmul32: "all matrix multiplications in fp32", plan.Attention: "all attention", plan.Streaming: "all memory-bound kernels", plan.OneBlock: "all that wait for one block"}
	for _, c := range s.Classes {
		if c.Launches > 0 {
			rows = append(rows, row(names[c.Class], c))
		}
	}
	rows = append(rows, row("step", s.Step))
	p.printf("\n")
	p.table([]string{"KERNEL", "LAUNCHES", "TFLOP", "GB", "MS"}, rows)
	p.printf("%s tokens/s on one %s, without communication\n", formatRate(s.TokensPerSecond), s.GPU)
	r := s.Rates
	p.wrapf(2, "assumed, not measured: matrix multiplications %.0f TFLOP/s, attention (%s) %.0f TFLOP/s, memory %.2f TB/s, one block %.0f GB/s, a launch %.1f us",
		r.Matmul/1e12, s.Attention, r.Attention/1e12, r.Memory/1e12, r.Block/1e9, r.Launch*1e6)
}

func microBatches(n int) string {
	if n == 1 {
		return "one batch"
	}
	return fmt.Sprintf("%d micro-batches", n)
}

// formatRate formats a rate with four significant digits and without an exponent.
func formatRate(v float64) string {
	if v < 1000 {
		return fmt.Sprintf("%.4g", v)
	}
	unit := math.Pow(10, math.Floor(math.Log10(v))-3)
	return strconv.FormatFloat(math.Round(v/unit)*unit, 'f', 0, 64)
}

// formatMetric formats v with a metric prefix.
func formatMetric(v float64, unit string) string {
	for _, p := range []struct {
		from   float64
		prefix string
	}{{1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}} {
		if v >= p.from {
			return fmt.Sprintf("%.4g %s%s", v/p.from, p.prefix, unit)
		}
	}
	return fmt.Sprintf("%.4g %s", v, unit)
}

// fits returns the table cell, which is empty without a memory limit.
func fits(m predict.Memory) string {
	switch {
	case m.Fits == nil:
		return ""
	case m.Tight:
		return "tight"
	case *m.Fits:
		return "yes"
	}
	return "no"
}
