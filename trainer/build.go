package trainer

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/checkpointing"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/data"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/optim"
)

// build opens the data and allocates the model, gradients, and optimizer: all memory that steps
// need.
func (r *run) build(ctx context.Context) error {
	t := r.train
	err := r.openData(ctx)
	if err != nil {
		return err
	}
	if err := r.openDevice(ctx); err != nil {
		return err
	}
	if r.model, err = NewModel(&t.Model, r.data); err != nil {
		return fmt.Errorf("build model: %w", err)
	}
	r.batch = min(t.Batch, roundedUp(r.data.Len(), r.Comm.Size()))
	if best := r.Job.Checkpoint.KeepBest; best != "" && (r.eval == nil || best == jobs.MetricAccuracy && !r.eval.Classes()) {
		return hints.Errorf("add held-out data (train.data.eval_path or holdout), with classes for accuracy, or unset keep_best",
			"checkpoint.keep_best is %q, but these data do not provide it", best)
	}
	if r.eval != nil {
		r.batch = min(t.Batch, max(r.batch, roundedUp(r.eval.Len(), r.Comm.Size())))
	}
	if err := r.checkMemory(); err != nil {
		return err
	}
	// No rank allocates memory before the others have measured the free memory, because they
	// account for its share themselves.
	if err := r.Comm.Do(ctx, collective.Barrier()); err != nil {
		return err
	}
	sharder := ddp.New(r.deviceComm, r.device, r.model.Params(), r.ddpOptions()) // before Plan: see nn.Param.Rounded
	r.model.Plan(nn.Plan{Device: r.device, Batch: r.batch, Precision: precision(t.Precision), Train: true})
	if a := r.device.Accelerator(); a != nil {
		if err := a.Fallback(); err != nil {
			r.Observe(Event{Kind: Fallback, Err: err})
		}
	}
	state := &checkpointing.State{Comm: r.Comm, Device: r.device, Params: r.model.Params(), Sharder: sharder, Trace: r.Trace}
	optimizer, err := NewOptimizer(r.device, sharder.Parts(), &t.Optimizer)
	if err != nil {
		return fmt.Errorf("build optimizer: %w", err)
	}
	state.Optimizer = optimizer
	saver := r.newSaver(state)
	if err := saver.AllocCopies(); err != nil {
		r.Observe(Event{Kind: Unpinned, Err: err})
	}
	r.Trace.Reserve(spansPerStep(t.Accumulate, len(sharder.Parts())))
	schedule, err := newSchedule(t.Optimizer.LR, &t.Schedule)
	if err != nil {
		return fmt.Errorf("build learning rate schedule: %w", err)
	}
	r.loop = loop{
		stepper: stepper{device: r.device, model: r.model, params: state.Params, sharder: sharder, optimizer: optimizer, schedule: schedule,
			clipNorm: float64(t.Optimizer.ClipNorm), seed: t.Seed, rank: r.Comm.Rank(), size: r.Comm.Size(), trace: r.Trace},
		monitor: monitor{comm: r.Comm, steps: sharder, trace: r.Trace},
		saver:   saver,
		order:   order{train: t, data: r.data, rank: r.Comm.Rank(), size: r.Comm.Size(), reducesEachBatch: sharder.ReducesEachBatch()},
		loader:  data.NewLoader(r.data, r.batch, batchesAhead), batch: r.batch,
		epochs: t.Epochs, logEvery: t.LogEvery, saveEvery: r.Job.Checkpoint.Every, skipsNonFinite: t.NonFinite == jobs.NonFiniteSkip,
		stopRequested: r.stopRequested, observe: r.Observe, progress: r.Progress, trace: r.Trace, metrics: map[string]float64{},
	}
	r.loop.stepper.init(r.LaunchBlocking)
	if r.eval != nil {
		r.loop.evaluator = &evaluator{comm: r.Comm, data: r.eval, loader: data.NewLoader(r.eval, r.batch, batchesAhead), device: r.device, model: r.model,
			sharder: sharder, input: &r.loop.stepper.input, batch: r.batch, stopRequested: r.stopRequested, progress: r.Progress}
	}
	if r.loop.stepsPerEpoch = r.loop.order.count(position{}); r.loop.stepsPerEpoch == 0 {
		return hints.Errorf("use a smaller train.batch, or train.data.drop_last = false and uneven = \"join\"",
			"%d samples on %d ranks do not fill one batch of %d", r.data.Len(), r.Comm.Size(), t.Batch)
	}
	return nil
}

// batchesAhead is the number of batches to prefetch during the computation.
const batchesAhead = 1

// DataOptions converts a job's data settings to options for package data.
func DataOptions(t *jobs.Train) data.Options {
	d := t.Data
	return data.Options{
		Kind: string(d.Kind), Path: string(d.Path), EvalPath: string(d.EvalPath), Holdout: d.Holdout,
		Target: string(d.Target), Features: string(d.Features), Task: string(d.Task),
		Context: t.Model.Context, Vocabulary: string(d.Vocabulary), VocabularySize: d.VocabularySize, DType: string(d.DType),
		Samples: d.Samples, Inputs: d.Inputs, Outputs: d.Outputs, Seed: int64(t.Seed),
	}
}

// NewModel creates the model of a job for its data.
func NewModel(m *jobs.Model, d data.Dataset) (nn.Model, error) {
	dense := nn.MLPOptions{Hidden: m.Hidden, Activation: string(m.Activation), Dropout: m.Dropout}
	switch m.Kind {
	case jobs.ModelLinear:
		return nn.NewLinear(d.Inputs(), d.Outputs())
	case jobs.ModelMLP:
		return nn.NewMLP(d.Inputs(), dense, d.Outputs())
	case jobs.ModelCNN:
		channels, height, width := d.Image()
		return nn.NewCNN(channels, height, width, nn.CNNOptions{Channels: m.Channels, Kernel: m.Kernel, Dense: dense}, d.Outputs())
	case jobs.ModelGPT:
		return nn.NewGPT(nn.GPTOptions{Vocabulary: d.Outputs(), Context: m.Context, Layers: m.Layers, Heads: m.Heads, Width: m.Width, Dropout: m.Dropout})
	}
	return nil, fmt.Errorf("unknown kind %q", m.Kind)
}

// ddpOptions returns the options of the parallelism strategy.
func (r *run) ddpOptions() ddp.Options {
	t := r.train
	strategy, _ := ddp.ParseStrategy(string(t.Strategy)) // validated when the job was loaded
	return ddp.Options{Strategy: strategy, Extra: numExtra, FirstBucket: int(t.FirstBucket), Bucket: int(t.Bucket),
		BF16: t.Reduce == jobs.ReduceBF16, NoSync: t.NoSync && t.Accumulate > 1, Rounded: r.roundsWeights, Trace: r.Trace}
}

func precision(p jobs.Precision) device.Precision {
	if p == jobs.PrecisionBF16 {
		return device.BF16
	}
	return device.FP32
}

// NewOptimizer creates a job's optimizer for parameters or parts of them.
func NewOptimizer(d device.Device, params []*nn.Param, o *jobs.Optimizer) (optim.Optimizer, error) {
	return optim.New(d, params, optimizerOptions(o))
}

func optimizerOptions(o *jobs.Optimizer) optim.Options {
	return optim.Options{Kind: string(o.Kind), LR: o.LR, Momentum: o.Momentum, Nesterov: o.Nesterov,
		Beta1: o.Beta1, Beta2: o.Beta2, Eps: o.Eps, WeightDecay: o.WeightDecay}
}

// parameterGroups returns the groups of parameters whose settings differ from the optimizer's.
func parameterGroups(o *jobs.Optimizer) []optim.Group {
	if o.Decay != jobs.DecayMatrices || o.WeightDecay == 0 {
		return nil
	}
	return []optim.Group{{Selects: func(p *nn.Param) bool { return !p.IsMatrix() }}} // without weight decay
}

// newSchedule returns the learning rate as a function of the number of completed steps. A resumed
// run therefore continues its schedule automatically.
func newSchedule(lr float64, s *jobs.Schedule) (optim.Schedule, error) {
	var rate optim.Schedule
	var err error
	switch s.Kind {
	case "", jobs.ScheduleConstant:
		rate, err = optim.Constant(lr)
	case jobs.ScheduleCosine:
		rate, err = optim.Cosine(lr, s.Floor, int64(s.Steps))
	case jobs.ScheduleStep:
		rate, err = optim.StepDecay(lr, s.Gamma, int64(s.Every))
	default:
		err = fmt.Errorf("unknown kind %q", s.Kind)
	}
	if err != nil || s.WarmUp == 0 {
		return rate, err
	}
	return optim.Warmup(s.WarmUpFrom, int64(s.WarmUp), rate)
}

// SavedOptimizer returns the options and groups of the optimizer whose state a checkpoint contains, with
// the learning rate of the next step.
func SavedOptimizer(m *checkpoint.Manifest) (optim.Options, []optim.Group, error) {
	o, s := jobs.Optimizer{Kind: jobs.OptimizerKind(m.Optimizer)}, jobs.Schedule{}
	for _, setting := range []struct {
		key   string
		value any
	}{
		{"optimizer.lr", &o.LR}, {"optimizer.momentum", &o.Momentum}, {"optimizer.nesterov", &o.Nesterov}, {"optimizer.beta1", &o.Beta1},
		{"optimizer.beta2", &o.Beta2}, {"optimizer.eps", &o.Eps}, {"optimizer.weight_decay", &o.WeightDecay}, {"optimizer.decay", &o.Decay},
		{"schedule.kind", &s.Kind}, {"schedule.warmup", &s.WarmUp}, {"schedule.warmup_from", &s.WarmUpFrom}, {"schedule.steps", &s.Steps},
		{"schedule.floor", &s.Floor}, {"schedule.gamma", &s.Gamma}, {"schedule.every", &s.Every},
	} {
		text := m.Spec[setting.key]
		if text == "" { // settings that are 0 are omitted
			continue
		}
		if err := json.Unmarshal([]byte(text), setting.value); err != nil {
			return optim.Options{}, nil, fmt.Errorf("settings of the optimizer: %q: %w", setting.key, err)
		}
	}
	schedule, err := newSchedule(o.LR, &s)
	if err != nil {
		return optim.Options{}, nil, err
	}
	options := optimizerOptions(&o)
	options.LR = schedule(int64(m.Step))
	return options, parameterGroups(&o), nil
}
