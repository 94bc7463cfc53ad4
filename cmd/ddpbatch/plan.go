package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/plan"
)

type planCmd struct {
	Job  string   `arg:"" name:"job.toml" help:"Job file with [train]."`
	Set  []string `sep:"none" placeholder:"KEY=VALUE" help:"Override a key of the job file, such as train.batch=64. Repeatable."`
	JSON bool     `help:"Print the result as JSON."`

	Ranks     []int  `placeholder:"N" help:"World sizes, separated by commas (default: powers of two up to 16384, and the ranks of the job)."`
	Strategy  string `placeholder:"NAME" help:"Strategy: ddp, zero1, zero2, or zero3 (alias: fsdp) (default: train.strategy)."`
	Algorithm string `default:"auto" enum:"auto,ring,doubling,halving,hierarchical" placeholder:"NAME" help:"Algorithm of collectives: auto (the trainer's choice), ring, doubling, halving, or hierarchical (default: ${default})."`

	Measure bool `help:"Measure the speed of this machine, and assume that the nodes are equally fast."`
	Here    bool `help:"Measure the speed of this machine, and predict a launch on this machine only."`

	GPU            string   `name:"gpu" placeholder:"NAME" help:"GPU model, such as \"A100 80 GB\" (default: from the site profile)."`
	GFLOPS         *float64 `name:"gflops" placeholder:"N" help:"Compute speed per rank, in GFLOP/s."`
	Bandwidth      *float64 `placeholder:"GB/S" help:"Unidirectional bandwidth between nodes, per node."`
	Latency        *float64 `placeholder:"US" help:"Message latency between nodes, in microseconds."`
	LocalBandwidth *float64 `placeholder:"GB/S" help:"Bandwidth between the ranks of a node, per rank."`
	LocalLatency   *float64 `placeholder:"US" help:"Message latency within a node, in microseconds."`
	Memory         string   `placeholder:"SIZE" help:"Memory per rank, such as 64G (default: the GPU memory, or a share of the node's memory)."`

	Inputs  *int `placeholder:"N" help:"Input values per sample, if csv or safetensors data is not available on this machine."`
	Outputs *int `placeholder:"N" help:"Classes or target values per sample, if csv or safetensors data is not available on this machine."`
}

func (c *planCmd) Help() string {
	return `Counts the parameters, operations, and memory of the model, and simulates steps on
many ranks. The output lists all assumptions, such as the speed of the nodes. Flags
override them. The data set does not have to be available on this machine.
docs/plan.md describes the computation.`
}

// maxPlannedRanks is the largest number of ranks in the table, unless --ranks is set.
const maxPlannedRanks = 16384

// planAnswer is the output of plan --json.
type planAnswer struct {
	Name        string                `json:"name"`
	Model       jobs.ModelKind        `json:"model"`
	Device      string                `json:"device"` // "cpu", or the name of the GPU
	Precision   jobs.Precision        `json:"precision"`
	Parameters  int                   `json:"parameters"`
	Layers      []plan.Group          `json:"layers"`
	Batch       int                   `json:"batch"`
	Accumulate  int                   `json:"accumulate"`
	Tokens      int                   `json:"tokens_per_sample,omitempty"`
	Samples     int                   `json:"samples,omitempty"` // in the data set, if it is available
	FLOP        float64               `json:"flop_per_rank"`     // per step
	Ranks       int                   `json:"ranks"`             // ranks of the job
	Strategy    string                `json:"strategy"`
	MemoryLimit float64               `json:"memory_limit,omitempty"` // bytes per rank
	Memory      map[string]planMemory `json:"memory"`                 // per rank, by strategy, with the job's ranks
	FLOPS       float64               `json:"flop_per_s"`             // per rank
	Local       plan.Link             `json:"local"`
	Network     plan.Link             `json:"network"`
	Steps       []planStep            `json:"steps"`
	Recommended []string              `json:"recommended"`
	Notes       []string              `json:"assumed"`
	limit       string                // source of MemoryLimit
}

type planMemory struct {
	plan.Memory
	Total float64 `json:"total"`
	Fits  *bool   `json:"fits,omitempty"`
	Tight bool    `json:"tight,omitempty"` // whether it fits with less than plan.SpareFraction to spare
}

type planStep struct {
	plan.Step
	SamplesPerSecond float64 `json:"samples_per_s"`
	TokensPerSecond  float64 `json:"tokens_per_s,omitempty"`
}

func (c *planCmd) Run(ctx context.Context, p *program) error {
	if err := c.validateFlags(); err != nil {
		return err
	}
	f, missing, err := p.loadWithoutData(c.Job, c.Set)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	l := planner{cmd: c, file: f, job: f.job, missing: missing, notes: []string{}}
	a, err := l.plan(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		return p.printJSON(a)
	}
	p.printPlan(a)
	return nil
}

func (c *planCmd) validateFlags() error {
	for _, n := range c.Ranks {
		if n < 1 || n > 1<<24 {
			return usage(fmt.Sprintf("--ranks must be from 1 to %d", 1<<24))
		}
	}
	for _, flag := range []struct {
		name  string
		value *float64
	}{{"gflops", c.GFLOPS}, {"bandwidth", c.Bandwidth}, {"latency", c.Latency}, {"local-bandwidth", c.LocalBandwidth}, {"local-latency", c.LocalLatency}} {
		if flag.value != nil && !(*flag.value > 0 && *flag.value < 1e15) {
			return usage("--" + flag.name + " must be greater than 0")
		}
	}
	for _, n := range []*int{c.Inputs, c.Outputs} {
		if n != nil && *n < 1 {
			return usage("--inputs and --outputs must be at least 1")
		}
	}
	if _, err := ddp.ParseStrategy(c.Strategy); c.Strategy != "" && err != nil {
		return usage(fmt.Sprintf("--strategy must be ddp, zero1, zero2, zero3, or fsdp, not %q", c.Strategy))
	}
	if m := jobs.Memory(c.Memory); c.Memory != "" && m.Bytes() == 0 {
		return usage(`--memory must be an integer followed by K, M, G, or T, such as "64G"`)
	}
	return nil
}

// loadWithoutData is like load, but accepts missing data files, weights, and virtual
// environments. It reports whether the training data is missing.
func (p *program) loadWithoutData(path string, set []string) (f *jobFile, missing bool, err error) {
	f, err = p.load(path, set...)
	var found jobs.Diagnostics
	if f != nil && errors.As(err, &found) {
		left := slices.DeleteFunc(slices.Clone(found), func(d jobs.Diagnostic) bool {
			return slices.Contains([]string{"train.data.path", "train.data.eval_path", "train.model.weights", "setup.venv"}, d.Key)
		})
		missing = slices.ContainsFunc(found, func(d jobs.Diagnostic) bool { return d.Key == "train.data.path" })
		err = nil
		if len(left) > 0 {
			err = left
		}
	}
	if err != nil {
		return nil, false, err
	}
	if f.job.Train == nil {
		return nil, false, exitError{exitUsage, hints.Add(fmt.Errorf("plan %q: no [train] in the job file", path),
			"only jobs of the built-in trainer can be predicted")}
	}
	f.job.ResolvePaths(f.base)
	return f, missing, nil
}

// A planner computes the answer of plan.
type planner struct {
	cmd     *planCmd
	file    *jobFile
	job     *jobs.Job
	missing bool // whether the data set is not available here
	notes   []string

	subject  subject
	work     plan.Work
	training plan.Training
	gpu      *plan.GPU // nil for CPUs
	machine  plan.Machine
	program  plan.Program
}

// assume records an assumption, which the output lists.
func (l *planner) assume(format string, args ...any) {
	l.notes = append(l.notes, fmt.Sprintf(format, args...))
}

func (l *planner) plan(ctx context.Context) (*planAnswer, error) {
	t := l.job.Train
	if l.job.Sweep != nil {
		l.assume("a single run with the values of the job file, without [sweep]")
	}
	var err error
	if l.gpu, err = l.findGPU(); err != nil {
		return nil, err
	}
	if l.subject, err = l.open(ctx); err != nil {
		return nil, err
	}
	model, err := l.subject.model(&t.Model)
	if err != nil {
		return nil, exitError{exitFailed, err}
	}
	const mostRows = 1 << 24
	if rows := int(t.Batch) * max(1, l.subject.sample.Tokens); rows > mostRows {
		return nil, exitError{exitUsage, hints.Add(fmt.Errorf("plan %q: a micro-batch has %d samples or tokens, more than %d", l.cmd.Job, rows, mostRows),
			"use a smaller train.batch with train.accumulate")}
	}
	l.work = plan.Count(model, l.subject.sample, int(t.Batch), l.subject.precision, l.gpu != nil)
	l.work.FirstBucket, l.work.Bucket = int(t.FirstBucket), int(t.Bucket)
	l.work.NoSync = t.NoSync && t.Accumulate > 1
	l.training = plan.Training{Element: plan.Elements(moments(&t.Optimizer)), Accumulate: max(1, int(t.Accumulate))}
	l.training.Element.Compressed = t.Reduce == jobs.ReduceBF16
	// No errors are possible: check validated the flags, and load validated the job.
	l.training.Strategy, _ = ddp.ParseStrategy(cmp.Or(l.cmd.Strategy, string(t.Strategy)))
	l.training.Algorithm, _ = plan.ParseAlgorithm(l.cmd.Algorithm)
	if err := l.setMachine(ctx); err != nil {
		return nil, err
	}
	return l.answer(), nil
}

// moments returns the number of state values that the optimizer stores per parameter.
func moments(o *jobs.Optimizer) int {
	switch {
	case o.Kind != jobs.OptimizerSGD:
		return 2
	case o.Momentum > 0:
		return 1
	}
	return 0
}

// ranks returns the number of ranks of the job.
func (l *planner) ranks() int { return l.job.Ranks() }

// rankNumbers returns the numbers of ranks for the table, in increasing order.
func (l *planner) rankNumbers() []int {
	numbers := slices.Clone(l.cmd.Ranks)
	if len(numbers) == 0 {
		most := maxPlannedRanks
		if l.cmd.Here {
			most = 4
		}
		for n := 1; n <= most; n *= 2 {
			numbers = append(numbers, n)
		}
		numbers = append(numbers, l.ranks())
	}
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

func (l *planner) answer() *planAnswer {
	t := l.job.Train
	a := &planAnswer{
		Name: string(l.job.Name), Model: t.Model.Kind, Device: "cpu", Precision: t.Precision,
		Parameters: l.work.NumParams(), Layers: l.work.Groups, Batch: int(t.Batch), Accumulate: l.training.Accumulate,
		Tokens: l.subject.sample.Tokens, Samples: l.subject.samples, FLOP: l.work.FLOP() * float64(l.training.Accumulate),
		Ranks: l.ranks(), Strategy: l.training.Strategy.String(), Memory: map[string]planMemory{},
		FLOPS: l.machine.FLOPS, Local: l.machine.Local, Network: l.machine.Network,
	}
	if l.gpu != nil {
		a.Device = l.gpu.Name
	}
	a.MemoryLimit, a.limit = l.memoryLimit()
	for _, s := range ddp.Strategies() {
		m := l.memory(s)
		row := planMemory{Memory: m, Total: m.Total()}
		if a.MemoryLimit > 0 {
			fits := row.Total <= a.MemoryLimit
			row.Fits, row.Tight = &fits, fits && row.Total > plan.Usable(a.MemoryLimit)
		}
		a.Memory[s.String()] = row
	}
	for _, n := range l.rankNumbers() {
		s := planStep{Step: plan.Predict(l.work, l.training, l.machine, n)}
		s.SamplesPerSecond = float64(n*a.Batch*a.Accumulate) / s.Seconds
		s.TokensPerSecond = s.SamplesPerSecond * float64(a.Tokens)
		a.Steps = append(a.Steps, s)
	}
	a.Recommended = l.advice(a)
	a.Notes = l.notes
	return a
}

// memory returns the memory of one rank with strategy s and the job's number of ranks.
func (l *planner) memory(s ddp.Strategy) plan.Memory {
	return l.work.Memory(s, l.training.Element, l.ranks(), l.program)
}
