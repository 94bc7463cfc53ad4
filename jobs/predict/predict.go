// Package predict predicts the memory, speed, and scaling of a job of the built-in trainer. It
// reads the size of the job from the job file, the site profile, and the data set. Package
// trainer/plan computes the prediction from the model and the machine.
//
// The package assumes a value for everything that it cannot determine, and the result lists each
// assumption. The data set does not have to be available on this machine. With [Options.Measure]
// or [Options.Here], the package runs parts of a training step to measure this machine. It does not
// print, and does not query Slurm.
package predict

import (
	"context"
	"fmt"
	"slices"

	"github.com/ddpbatch/ddpbatch/internal/exitcode"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/templates/sites"
	"github.com/ddpbatch/ddpbatch/trainer"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/plan"
)

// maxTableRanks is the largest number of ranks in the table, unless Options.Ranks is set.
const maxTableRanks = 16384

// Options select what to predict. A nil value is measured or assumed.
type Options struct {
	Path        string // of the job file, for messages
	Job         *jobs.Job
	Site        *sites.Profile
	MissingData bool // whether the data set is not available on this machine

	Ranks     []int        // rows of the table; nil for the default
	Strategy  ddp.Strategy // of the job, unless the user selects a different one
	Algorithm string       // of collectives, see [plan.ParseAlgorithm]

	Measure bool // measure the speed of this machine
	Here    bool // predict a launch on this machine only

	GPU            string      // model; empty for the one in the site profile
	GFLOPS         *float64    // per rank
	Bandwidth      *float64    // between nodes, per node, in GB/s
	Latency        *float64    // between nodes, in microseconds
	LocalBandwidth *float64    // within a node, per rank, in GB/s
	LocalLatency   *float64    // within a node, in microseconds
	Memory         jobs.Memory // per rank

	Explain bool // add the speed model of a step on the GPU
	MMA     bool // attention on Hopper uses mma instead of wgmma

	Inputs, Outputs *int // values per sample of csv and safetensors data that is not available
}

// A Prediction is the result of [Run].
type Prediction struct {
	Name        string            `json:"name"`
	Model       jobs.ModelKind    `json:"model"`
	Device      string            `json:"device"` // "cpu", or the name of the GPU
	Precision   jobs.Precision    `json:"precision"`
	Parameters  int               `json:"parameters"`
	Layers      []plan.Group      `json:"layers"`
	Batch       int               `json:"batch"`
	Accumulate  int               `json:"accumulate"`
	Tokens      int               `json:"tokens_per_sample,omitempty"`
	Samples     int               `json:"samples,omitempty"` // in the data set, if it is available
	FLOP        float64           `json:"flop_per_rank"`     // per step
	Ranks       int               `json:"ranks"`             // ranks of the job
	Strategy    string            `json:"strategy"`
	MemoryLimit float64           `json:"memory_limit,omitempty"` // bytes per rank
	Memory      map[string]Memory `json:"memory"`                 // per rank, by strategy, with the job's ranks
	FLOPS       float64           `json:"flop_per_s"`             // per rank
	Local       plan.Link         `json:"local"`
	Network     plan.Link         `json:"network"`
	Steps       []Step            `json:"steps"`
	Recommended []string          `json:"recommended"`
	Notes       []string          `json:"assumed"`
	GPUStep     *GPUStep          `json:"gpu_step,omitempty"` // with Options.Explain
	Limit       string            `json:"-"`                  // source of MemoryLimit
}

// Memory is the memory of a rank.
type Memory struct {
	plan.Memory
	Total float64 `json:"total"`
	Fits  *bool   `json:"fits,omitempty"`
	Tight bool    `json:"tight,omitempty"` // whether it fits with less than plan.SpareFraction to spare
}

// A Step is the prediction for one number of ranks.
type Step struct {
	plan.Step
	SamplesPerSecond float64 `json:"samples_per_s"`
	TokensPerSecond  float64 `json:"tokens_per_s,omitempty"`
}

// Run predicts a job.
func Run(ctx context.Context, o Options) (*Prediction, error) {
	p := predictor{Options: o, notes: []string{}}
	return p.run(ctx)
}

// A predictor computes a prediction.
type predictor struct {
	Options
	notes []string

	data     dataInfo
	work     plan.Work
	training plan.Training
	gpu      *plan.GPU // nil for CPUs
	gpuStep  *GPUStep
	machine  plan.Machine
	program  plan.Program
}

// assume records an assumption, which the output lists.
func (p *predictor) assume(format string, args ...any) {
	p.notes = append(p.notes, fmt.Sprintf(format, args...))
}

func (p *predictor) run(ctx context.Context) (*Prediction, error) {
	t := p.Job.Train
	if p.Job.Sweep != nil {
		p.assume("a single run with the values of the job file, without [sweep]")
	}
	if p.needsWholeTensors() && p.Options.Strategy != ddp.DDP {
		return nil, exitcode.Usagef("use --strategy ddp, or a different train.optimizer.kind",
			"plan %q: %s divides tensors among ranks, but the optimizer %q needs whole tensors", p.Path, p.Options.Strategy, t.Optimizer.Kind)
	}
	var err error
	if p.gpu, err = p.findGPU(); err != nil {
		return nil, err
	}
	if p.data, err = p.openData(ctx); err != nil {
		return nil, err
	}
	model, err := p.data.model(&t.Model)
	if err != nil {
		return nil, err
	}
	const maxRows = 1 << 24
	if rows := t.Batch * max(1, p.data.sample.Tokens); rows > maxRows {
		return nil, exitcode.Usagef("use a smaller train.batch with train.accumulate",
			"plan %q: a micro-batch has %d samples or tokens, more than %d", p.Path, rows, maxRows)
	}
	p.work = plan.Count(model, p.data.sample, t.Batch, p.data.precision, p.gpu != nil)
	p.work.FirstBucket, p.work.Bucket = int(t.FirstBucket), int(t.Bucket)
	p.work.NoSync = t.NoSync && t.Accumulate > 1
	element, err := elementOf(model, &t.Optimizer)
	if err != nil {
		return nil, fmt.Errorf("plan %q: %w", p.Path, err)
	}
	p.training = plan.Training{Element: element, Accumulate: max(1, t.Accumulate)}
	p.training.Element.Compressed = t.Reduce == jobs.ReduceBF16
	p.training.Strategy = p.Options.Strategy
	if p.training.Algorithm, err = plan.ParseAlgorithm(p.Algorithm); err != nil {
		return nil, err
	}
	if err := p.setMachine(ctx); err != nil {
		return nil, err
	}
	if p.Explain {
		if p.gpuStep, err = p.explain(ctx, model); err != nil {
			return nil, err
		}
	}
	return p.result(), nil
}

// elementOf returns the memory and the work of an optimizer per parameter element of a model. It
// counts a step on a device that computes nothing.
func elementOf(model nn.Model, o *jobs.Optimizer) (plan.Element, error) {
	var c plan.Counter
	params := model.Params()
	nn.AllocValues(&c, params)
	nn.AllocGrads(&c, params)
	before := c.Bytes
	rule, err := trainer.NewOptimizer(&c, params, o)
	if err != nil {
		return plan.Element{}, err
	}
	state, elements := 0, 0
	rule.StateBy(func(t device.Tensor) []float32 { state += t.Len(); return nil })
	for _, p := range params {
		elements += p.Len()
	}
	e := plan.Elements(float64(state) / float64(elements))
	e.Workspace = float64(c.Bytes-before) - 4*float64(state)
	rule.Step(params, 1)
	e.UpdateFLOP = c.FLOP / float64(elements)
	return e, nil
}

// needsWholeTensors reports whether the optimizer supports only ddp, of all strategies.
func (p *predictor) needsWholeTensors() bool {
	return p.Job.Train.Optimizer.Kind == jobs.OptimizerMuon
}

// rankNumbers returns the numbers of ranks for the table, in increasing order.
func (p *predictor) rankNumbers() []int {
	numbers := slices.Clone(p.Ranks)
	if len(numbers) == 0 {
		most := maxTableRanks
		if p.Here {
			most = 4
		}
		for n := 1; n <= most; n *= 2 {
			numbers = append(numbers, n)
		}
		numbers = append(numbers, p.Job.Ranks())
	}
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

func (p *predictor) result() *Prediction {
	t := p.Job.Train
	a := &Prediction{
		Name: string(p.Job.Name), Model: t.Model.Kind, Device: "cpu", Precision: t.Precision,
		Parameters: p.work.NumParams(), Layers: p.work.Groups, Batch: t.Batch, Accumulate: p.training.Accumulate,
		Tokens: p.data.sample.Tokens, Samples: p.data.samples, FLOP: p.work.FLOP() * float64(p.training.Accumulate),
		Ranks: p.Job.Ranks(), Strategy: p.training.Strategy.String(), Memory: map[string]Memory{},
		FLOPS: p.machine.FLOPS, Local: p.machine.Local, Network: p.machine.Network,
	}
	if p.gpu != nil {
		a.Device = p.gpu.Name
	}
	a.MemoryLimit, a.Limit = p.memoryLimit()
	for _, s := range ddp.Strategies() {
		if s != ddp.DDP && p.needsWholeTensors() {
			continue
		}
		m := p.memoryOf(s)
		row := Memory{Memory: m, Total: m.Total()}
		if a.MemoryLimit > 0 {
			fits := row.Total <= a.MemoryLimit
			row.Fits, row.Tight = &fits, fits && row.Total > plan.Usable(a.MemoryLimit)
		}
		a.Memory[s.String()] = row
	}
	for _, n := range p.rankNumbers() {
		s := Step{Step: plan.Predict(p.work, p.training, p.machine, n)}
		s.SamplesPerSecond = float64(n*a.Batch*a.Accumulate) / s.Seconds
		s.TokensPerSecond = s.SamplesPerSecond * float64(a.Tokens)
		a.Steps = append(a.Steps, s)
	}
	a.Recommended = p.advice(a)
	a.Notes = p.notes
	a.GPUStep = p.gpuStep
	return a
}

// memoryOf returns the memory of one rank with strategy s and the job's number of ranks.
// If the optimizer does not support s, it is the memory with ddp.
func (p *predictor) memoryOf(s ddp.Strategy) plan.Memory {
	if p.needsWholeTensors() {
		s = ddp.DDP
	}
	return p.work.Memory(s, p.training.Element, p.Job.Ranks(), p.program)
}
