package trainer

import (
	"context"
	"fmt"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/data"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
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
	r.params = r.model.Params()
	r.batch = min(t.Batch, perRank(r.data.Len(), r.Comm.Size()))
	if err := r.checkKeepBest(); err != nil {
		return err
	}
	if r.eval != nil {
		r.batch = min(t.Batch, max(r.batch, perRank(r.eval.Len(), r.Comm.Size())))
	}
	if err := r.checkMemory(); err != nil {
		return err
	}
	// No rank allocates memory before the others have measured the free memory, because they
	// account for its share themselves.
	if err := r.Comm.Do(ctx, collective.Barrier()); err != nil {
		return err
	}
	r.model.Plan(nn.Plan{Device: r.device, Batch: r.batch, Precision: precision(t.Precision), Train: true})
	r.sharder = ddp.New(r.deviceComm, r.device, r.params, r.ddpOptions())
	if r.optimizer, err = NewOptimizer(r.device, r.sharder.Parts(), &t.Optimizer); err != nil {
		return fmt.Errorf("build optimizer: %w", err)
	}
	r.allocCopies()
	r.Trace.Reserve(spansPerStep(t.Accumulate, len(r.sharder.Parts())))
	if r.schedule, err = newSchedule(t.Optimizer.LR, &t.Schedule); err != nil {
		return fmt.Errorf("build learning rate schedule: %w", err)
	}
	r.stepper = stepper{device: r.device, model: r.model, params: r.params, sharder: r.sharder, optimizer: r.optimizer, schedule: r.schedule,
		clipNorm: float64(t.Optimizer.ClipNorm), seed: t.Seed, rank: r.Comm.Rank(), size: r.Comm.Size(), trace: r.Trace}
	r.stepper.init(r.LaunchBlocking)
	r.monitor = monitor{comm: r.Comm, steps: r.sharder, trace: r.Trace}
	r.loader = data.NewLoader(r.data, r.batch, batchesAhead)
	if r.eval != nil {
		r.evaluator = evaluator{comm: r.Comm, data: r.eval, loader: data.NewLoader(r.eval, r.batch, batchesAhead), device: r.device, model: r.model,
			sharder: r.sharder, input: &r.stepper.input, batch: r.batch, stopRequested: r.stopRequested, progress: r.Progress}
	}
	r.stepsPerEpoch = r.countSteps(position{})
	if r.stepsPerEpoch == 0 {
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
		return nn.NewGPT(GPTOptions(m, d.Outputs()))
	}
	return nil, fmt.Errorf("unknown kind %q", m.Kind)
}

// GPTOptions returns the shape of a job's GPT for the given vocabulary size.
func GPTOptions(m *jobs.Model, vocabulary int) nn.GPTOptions {
	return nn.GPTOptions{Vocabulary: vocabulary, Context: m.Context, Layers: m.Layers, Heads: m.Heads,
		Width: m.Width, Dropout: m.Dropout}
}

// ddpOptions returns the options of the parallelism strategy.
func (r *run) ddpOptions() ddp.Options {
	t := r.train
	strategy, _ := ddp.ParseStrategy(string(t.Strategy)) // validated when the job was loaded
	return ddp.Options{Strategy: strategy, Extra: numExtra, FirstBucket: int(t.FirstBucket), Bucket: int(t.Bucket),
		BF16: t.Reduce == jobs.ReduceBF16, NoSync: t.NoSync && t.Accumulate > 1, Trace: r.Trace}
}

func precision(p jobs.Precision) device.Precision {
	if p == jobs.PrecisionBF16 {
		return device.BF16
	}
	return device.FP32
}
