package trainer

import (
	"context"
	"fmt"
	"math"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/trainer/data"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/optim"
	"github.com/ddpbatch/ddpbatch/trainer/trace"
)

// The scalars that are reduced with the gradients of a step.
const (
	extraLoss         = iota // loss of the global batch
	extraHash                // hash of the operations before this step, in two elements
	_                        // the second element
	extraStop                // above 0: a rank was asked to stop
	extraSaveInFlight        // above 0: a rank has not written its part of a checkpoint yet
	numExtra
)

// maxHashRanks is the maximum number of ranks that compare the hashes of their operations: the sum of
// more hashes is not exact.
const maxHashRanks = 1 << 14

// A stepper runs optimizer steps. Losses, the norm of the gradients, clipping, and the decision
// whether to update are on the device. The host reads the outcome of a step once, while the device
// computes the next step. So the number of times that the host waits for the device does not depend
// on the number of ranks or buckets, except for collectives.
type stepper struct {
	device     device.Device
	model      nn.Model
	params     []*nn.Param
	sharder    *ddp.Sharder
	optimizer  optim.Optimizer
	schedule   optim.Schedule
	clipNorm   float64 // maximum norm of the gradients; 0 disables clipping
	seed       uint64
	rank, size int

	trace    *trace.Recorder
	capturer device.Accelerator // nil if operations run immediately
	lag      int                // number of steps whose outcome the host does not wait for

	decision         device.StepDecision
	results          [2]stepResult     // used alternately
	enqueued, synced int               // numbers of steps: enqueued, and with their outcome read
	flags            [numExtra]float32 // extraStop and later scalars, as on the device
	hash             device.Tensor     // hash of the operations before this step
	hashValue        ddp.Hash          // as on the device
	partialLoss      device.Tensor     // receives the loss before the last micro-batch; never read
	input            deviceBatch
	pass             nn.Pass
	ready, readyZero func(param int) // created once, because creating them allocates
}

// stepResult is an asynchronous copy of a step's result to the host.
type stepResult struct {
	at     position // before the step
	hash   ddp.Hash // of this rank
	work   ddp.StepWork
	values device.Reading
}

// outcome is the result of a step. All ranks have the same.
type outcome struct {
	at           position // before the step
	isUpdated    bool     // false: loss or norm are not finite, and no parameter has changed
	loss         float64  // mean of all samples and ranks
	norm         float64  // of the gradients before clipping
	stop         bool     // a rank was asked to stop
	saveInFlight bool     // a rank has not written its part of a checkpoint yet
}

// init allocates what steps need. The fields for the model, the sharder, and the optimizer are set.
func (s *stepper) init(isBlocking bool) {
	s.decision = s.device.NewStepDecision(numExtra)
	for i := range s.results {
		s.results[i].values = s.device.NewReading()
	}
	s.partialLoss = s.device.Alloc(device.Float32, 1)
	s.hash = s.device.Alloc(device.Float32, len(s.hashValue))
	s.ready = s.sharder.Ready
	s.readyZero = func(param int) { // of a padding batch
		s.device.Zero(s.params[param].Grad)
		s.sharder.Ready(param)
	}
	if !isBlocking {
		s.capturer = s.device.Accelerator()
		if !s.device.Host() {
			s.lag = 1
		}
	}
}

// begin begins a step.
func (s *stepper) begin(ctx context.Context, at position) {
	r := &s.results[s.enqueued%len(s.results)]
	r.at, r.hash = at, s.sharder.TakeHash()
	if r.hash != s.hashValue {
		s.hashValue = r.hash
		s.device.Write(s.hash, s.hashValue[:])
	}
	s.pass = nn.Pass{Train: true, Seed: stepSeed(s.seed, uint64(at.Step)), First: s.rank, Stride: s.size, Owner: s.sharder.Owner(), DeferLoss: true}
	if s.capturer != nil {
		s.capturer.Begin()
	}
	s.sharder.Start(ctx)
	if s.sharder.ReducesEachBatch() {
		s.device.Zero(s.sharder.Extra().Slice(extraLoss, extraStop))
	}
}

// forward runs the forward pass of micro-batch i of a step, and adds its loss.
func (s *stepper) forward(step *stepBatches, i int, batch nn.Batch) {
	at := s.trace.Now()
	weight := float64(batch.Samples) / float64(step.samples)
	s.pass.Weight = float32(weight)
	s.model.Forward(batch, s.pass)
	if i >= step.count {
		weight = 0 // padding
	}
	rows, parts := s.model.Losses()
	loss := s.sharder.Extra().Slice(extraLoss, extraLoss+1)
	if i < len(step.batches)-1 {
		loss = s.partialLoss // scalars may be reduced with each micro-batch, and the loss counts once
	} else {
		s.device.Copy(s.sharder.Extra().Slice(extraHash, extraStop), s.hash)
	}
	s.decision.AddLoss(loss, rows, parts, weight)
	s.trace.Add(trace.Forward, i, at)
}

// backward runs the backward pass of micro-batch i of a step. Gradients are reduced as soon as they
// are complete: in the last micro-batch, or in each.
func (s *stepper) backward(step *stepBatches, i int, batch nn.Batch) {
	at := s.trace.Now()
	last, each := i == len(step.batches)-1, s.sharder.ReducesEachBatch()
	var ready func(int) // nil: accumulate only (no_sync in PyTorch)
	switch {
	case i >= step.count:
		ready = s.readyZero
	case last || each:
		ready = s.ready
	}
	s.model.Backward(batch, s.pass, ready)
	s.pass.Accumulate = !each
	s.pass.First += batch.Samples * s.size
	s.trace.Add(trace.Backward, i, at)
}

// setFlags sets the scalars of this rank. They stay set until they are changed.
func (s *stepper) setFlags(stop, saveInFlight bool) {
	var flags [numExtra]float32
	if stop {
		flags[extraStop] = 1
	}
	if saveInFlight {
		flags[extraSaveInFlight] = 1
	}
	if flags != s.flags {
		s.flags = flags
		s.device.Write(s.sharder.Extra().Slice(extraStop, numExtra), s.flags[extraStop:])
	}
}

// reduce waits until the gradients are reduced, and sums their squares and the scalars of all ranks.
func (s *stepper) reduce(ctx context.Context) error {
	defer s.trace.Add(trace.Finish, 0, s.trace.Now())
	if err := s.sharder.Finish(ctx); err != nil {
		return err
	}
	s.decision.Reduce(s.sharder.Records())
	return nil
}

// clipAndUpdate enqueues the update with clipped gradients. The device skips it if the loss or the
// norm of the gradients is not finite.
func (s *stepper) clipAndUpdate(step int64) {
	defer s.trace.Add(trace.Optimizer, 0, s.trace.Now())
	s.optimizer.SetRate(s.schedule(step))
	s.optimizer.StepAsync(s.sharder.Parts(), s.decision, s.clipNorm)
	s.sharder.MarkUpdated()
}

// end ends a step: its outcome can be read.
func (s *stepper) end() {
	r := &s.results[s.enqueued%len(s.results)]
	r.values.Begin(s.decision.Result())
	r.work = s.sharder.TakeWork(r.work)
	s.enqueued++
	if s.capturer != nil {
		s.capturer.End()
	}
}

// discard ends a step without its update and without an outcome, and waits until it has ended. Its
// times count in no report.
func (s *stepper) discard(ctx context.Context) error {
	err := s.reduce(ctx)
	if err == nil {
		r := &s.results[s.enqueued%len(s.results)]
		r.work = s.sharder.TakeWork(r.work)
		s.sharder.MarkUpdated() // frees gathered values, as after a step
		if s.capturer != nil {
			s.capturer.End()
		}
		err = s.sharder.Wait(ctx, r.work)
	}
	s.sharder.TakeTimes()
	return err
}

// next waits for the outcome of the oldest step whose outcome has not been read. It returns false if
// no more than the given number of steps remain.
func (s *stepper) next(ctx context.Context, remaining int) (o outcome, ok bool, err error) {
	if s.synced >= s.enqueued-remaining {
		return o, false, nil
	}
	at := s.trace.Now()
	r := &s.results[s.synced%len(s.results)]
	s.synced++
	if err := s.sharder.Wait(ctx, r.work); err != nil {
		return o, false, fmt.Errorf("step %d: %w", r.at.Step, err)
	}
	v := r.values.Floats()
	if !s.device.Host() {
		s.trace.Add(trace.Device, 0, at)
	}
	o = outcome{at: r.at, isUpdated: v[0] != 0, norm: float64(v[1])}
	v = v[2:]
	if err := s.compareHashes(v[extraHash:extraStop], r.hash); err != nil {
		return o, false, fmt.Errorf("step %d: %w", r.at.Step, err)
	}
	o.loss, o.stop, o.saveInFlight = float64(v[extraLoss]), v[extraStop] > 0, v[extraSaveInFlight] > 0
	if o.isUpdated {
		s.optimizer.CountStep()
	}
	return o, true, nil
}

// compareHashes compares the sums over all ranks with the hash of this rank. If ranks ran different
// operations before the step, at least one of them finds a difference.
func (s *stepper) compareHashes(sums []float32, own ddp.Hash) error {
	for i, sum := range sums {
		if s.size <= maxHashRanks && sum != float32(s.size)*own[i] {
			return hints.Errorf("set network.check_operations = true and run the job again: the error then names the operation and the rank",
				"the ranks ran different operations before this step: the sum of their hashes is %v, want %v", sum, float32(s.size)*own[i])
		}
	}
	return nil
}

func isFinite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// stepSeed returns the seed for a step's dropout: the output of SplitMix64 with the index step,
// seeded with the run's seed (Steele et al. 2014).
func stepSeed(seed, step uint64) uint64 {
	z := seed + (step+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// addStepToError adds the step to the failure of a device.
func addStepToError(err *error, step int64) {
	if f, ok := (*err).(*device.Failure); ok {
		*err = fmt.Errorf("step %d: %w", step, f)
	}
}

// deviceBatch is device memory for batches, if the device does not use host memory.
type deviceBatch struct{ x, tokens, labels, targets device.Tensor }

// upload returns n samples in memory of the device. On a device with its own memory, they overwrite
// the previous batch after its computation. The memory has space for maxSamples samples.
func (u *deviceBatch) upload(d device.Device, b data.Batch, n, maxSamples int) nn.Batch {
	if d.Host() {
		return nn.Batch{Samples: n, X: device.Host(b.X), Tokens: device.HostInts(b.Tokens), Labels: device.HostInts(b.Labels), Targets: device.Host(b.Targets)}
	}
	alloc := func(t *device.Tensor, kind device.Type, elements int) device.Tensor {
		if t.Len() < elements {
			*t = d.Alloc(kind, elements/n*maxSamples)
		}
		return t.Slice(0, elements)
	}
	floats := func(t *device.Tensor, v []float32) device.Tensor {
		to := alloc(t, device.Float32, len(v))
		d.Write(to, v)
		return to
	}
	ints := func(t *device.Tensor, v []int32) device.Tensor {
		to := alloc(t, device.Int32, len(v))
		d.WriteInts(to, v)
		return to
	}
	return nn.Batch{Samples: n, X: floats(&u.x, b.X), Tokens: ints(&u.tokens, b.Tokens), Labels: ints(&u.labels, b.Labels), Targets: floats(&u.targets, b.Targets)}
}
