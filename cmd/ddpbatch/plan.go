package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/jobfile"
	"github.com/ddpbatch/ddpbatch/jobs/predict"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/engine"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
)

type planCmd struct {
	Job  string   `arg:"" name:"job.toml" help:"Job file with [train]."`
	Set  []string `sep:"none" placeholder:"KEY=VALUE" help:"Override a key of the job file, such as train.batch=64. Repeatable."`
	JSON bool     `help:"Print the result as JSON."`

	Ranks     []int  `placeholder:"N" help:"World sizes, separated by commas (default: powers of two up to 16384, and the ranks of the job)."`
	Strategy  string `placeholder:"NAME" help:"Strategy: ddp, zero1, zero2, or zero3 (alias: fsdp) (default: train.strategy)."`
	Algorithm string `default:"auto" enum:"auto,ring,doubling,halving,hierarchical" placeholder:"NAME" help:"Algorithm of collectives: auto (the trainer's choice), ring, doubling, halving, or hierarchical (default: ${default})."`

	Explain bool `help:"Also print the speed model of a step on one GPU: launches, operations, bytes, and time of each kernel. For a GPT in bf16."`

	Measure bool `help:"Measure the speed of this machine, and assume that the nodes are equally fast."`
	Here    bool `help:"Measure the speed of this machine, and predict a launch on this machine only."`

	GPU            string   `name:"gpu" placeholder:"NAME" help:"GPU model, such as \"A100 80 GB\" (default: from the site profile)."`
	GFLOPS         *float64 `name:"gflops" placeholder:"N" help:"Compute speed per rank, in GFLOP/s."`
	Bandwidth      *float64 `placeholder:"GB/S" help:"Unidirectional bandwidth between nodes, per node, in GB/s."`
	Latency        *float64 `placeholder:"US" help:"Message latency between nodes, in microseconds."`
	LocalBandwidth *float64 `placeholder:"GB/S" help:"Bandwidth between the ranks of a node, per rank, in GB/s."`
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
	o := predict.Options{Path: c.Job, Job: f.Job, Site: f.Site, MissingData: missing, Ranks: c.Ranks, Algorithm: c.Algorithm, Measure: c.Measure, Here: c.Here,
		GPU: c.GPU, GFLOPS: c.GFLOPS, Bandwidth: c.Bandwidth, Latency: c.Latency, LocalBandwidth: c.LocalBandwidth, LocalLatency: c.LocalLatency,
		Memory: jobs.Memory(c.Memory), Inputs: c.Inputs, Outputs: c.Outputs, Explain: c.Explain}
	if c.Explain {
		attention, err := p.attention()
		if err != nil {
			return err
		}
		o.MMA = attention == engine.MMA
	}
	if o.Strategy, err = ddp.ParseStrategy(cmp.Or(c.Strategy, string(f.Job.Train.Strategy))); err != nil {
		return err
	}
	result, err := predict.Run(ctx, o)
	if err != nil {
		return err
	}
	if c.JSON {
		return p.printJSON(result)
	}
	p.printPlan(result)
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
func (p *program) loadWithoutData(path string, set []string) (f *jobfile.File, missing bool, err error) {
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
	if f.Job.Train == nil {
		return nil, false, exitError{exitUsage, hints.Add(fmt.Errorf("plan %q: no [train] in the job file", path),
			"only jobs of the built-in trainer can be predicted")}
	}
	f.Job.ResolvePaths(f.Base)
	return f, missing, nil
}
