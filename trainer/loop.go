package trainer

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/data"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/optim"
)

// Scalars that travel with the gradients of a step.
const (
	extraLoss = iota // loss of the whole batch
	extraStop        // above 0: a rank was asked to stop
	numExtra
)

// batch is memory for one batch of samples and the gradient of its loss.
type batch struct {
	x       nn.Matrix
	labels  []int32
	targets []float32
	dout    nn.Matrix
}

func newBatch(d data.Dataset, size int) batch {
	b := batch{
		x:    nn.Matrix{Rows: size, Cols: d.Inputs(), Data: make([]float32, size*d.Inputs())},
		dout: nn.Matrix{Rows: size, Cols: d.Outputs(), Data: make([]float32, size*d.Outputs())},
	}
	if d.Classes() {
		b.labels = make([]int32, size)
	} else {
		b.targets = make([]float32, size*d.Outputs())
	}
	return b
}

// rows is the part of m that n samples fill.
func rows(m nn.Matrix, n int) nn.Matrix {
	return nn.Matrix{Rows: n, Cols: m.Cols, Data: m.Data[:n*m.Cols]}
}

// loop trains from the present position to the end, or until a stop.
func (r *run) loop(ctx context.Context) (stopped bool, err error) {
	for !r.finished() {
		r.intervalAt, r.intervalNum = time.Now(), 0
		stopped, err := r.epoch(ctx)
		if err != nil || stopped {
			return stopped, err
		}
	}
	return false, nil
}

// epoch trains the rest of the present epoch, evaluates and saves.
func (r *run) epoch(ctx context.Context) (stopped bool, err error) {
	t := r.train
	world := int64(r.Comm.Size())
	sampler := data.Sampler{N: r.data.Len(), Replicas: int(world), Rank: r.Comm.Rank(), Shuffle: *t.Data.Shuffle, Seed: int64(t.Seed)}
	indices := sampler.Resume(int(r.at.Epoch), int(r.at.Consumed))
	for len(indices) > 0 {
		mine := indices[:min(int(t.Batch), len(indices))]
		indices = indices[len(mine):]
		loss, stop, err := r.step(ctx, mine)
		if err != nil {
			return false, err
		}
		r.at.Step++
		r.Step.Store(r.at.Step)
		r.at.Consumed += int64(len(mine)) * world
		r.last["loss"] = loss
		r.intervalNum += len(mine) * int(world)
		if r.at.Step%int64(t.LogEvery.Steps(r.perEpoch)) == 0 || len(indices) == 0 {
			r.report(loss)
		}
		last := len(indices) == 0
		every := r.Job.Checkpoint.Every
		if stop && !last {
			return true, r.save()
		}
		if !last && every.Unit == jobs.Steps && r.at.Step%int64(every.N) == 0 {
			if err := r.save(); err != nil {
				return false, err
			}
		}
		stopped = stop
	}
	r.at.Epoch, r.at.Consumed = r.at.Epoch+1, 0
	if err := r.evaluate(ctx); err != nil {
		return false, err
	}
	every := r.Job.Checkpoint.Every
	due := every.Unit == jobs.Epochs && r.at.Epoch%int64(every.N) == 0 || every.Unit == jobs.Steps && r.at.Step%int64(every.N) == 0
	if due || stopped || r.finished() {
		if err := r.save(); err != nil {
			return false, err
		}
	}
	return stopped && !r.finished(), nil
}

// step is forward, backward with averaging, and update. It returns the loss of
// the whole batch over all ranks, and whether any rank was asked to stop.
func (r *run) step(ctx context.Context, indices []int) (loss float64, stop bool, err error) {
	n := len(indices)
	x, dout := rows(r.input.x, n), rows(r.input.dout, n)
	r.data.Read(indices, x.Data, r.input.labels, r.input.targets)
	out := r.model.Forward(x)
	if r.data.Classes() {
		loss = nn.CrossEntropy(out, r.input.labels[:n], dout)
	} else {
		loss = nn.MSE(out, r.input.targets[:n*out.Cols], dout)
	}
	r.reducer.Start(ctx)
	extra := r.reducer.Extra()
	extra[extraLoss], extra[extraStop] = float32(loss/float64(r.Comm.Size())), 0
	select {
	case <-r.Stop:
		extra[extraStop] = 1
	default:
	}
	r.model.Backward(dout, r.reducer.Ready)
	if err := r.reducer.Finish(); err != nil {
		return 0, false, fmt.Errorf("step %d: %w", r.at.Step, err)
	}
	loss = float64(extra[extraLoss])
	if math.IsNaN(loss) || math.IsInf(loss, 0) {
		return 0, false, diverged{fmt.Errorf("the loss became %v at step %d of epoch %d", loss, r.at.Step, r.at.Epoch)}
	}
	if most := float64(r.train.Optimizer.ClipNorm); most > 0 {
		if norm := optim.ClipGradNorm(r.params, most); math.IsNaN(norm) || math.IsInf(norm, 0) {
			return 0, false, diverged{fmt.Errorf("the gradient became %v at step %d of epoch %d", norm, r.at.Step, r.at.Epoch)}
		}
	}
	r.optimizer.SetRate(r.schedule(r.at.Step))
	r.optimizer.Step(r.params)
	return loss, extra[extraStop] > 0, nil
}

// diverged is a training that has left the finite numbers.
type diverged struct{ error }

// Hint says what to do about it.
func (diverged) Hint() string {
	return "nothing of this was saved; a smaller train.optimizer.lr is the usual cure, in a run directory of its own or from the start"
}

// report tells of the steps since the last report.
func (r *run) report(loss float64) {
	elapsed := time.Since(r.intervalAt)
	e := Event{Kind: Trained, Step: int(r.at.Step), Epoch: int(r.at.Epoch), Epochs: int(r.train.Epochs), Loss: loss,
		Steps: r.perEpoch * int(r.train.Epochs), LR: r.optimizer.Rate()}
	if elapsed > 0 {
		e.SamplesPerSecond = float64(r.intervalNum) / elapsed.Seconds()
		left := (int64(r.train.Epochs)-r.at.Epoch)*int64(r.data.Len()) - r.at.Consumed
		e.Remaining = time.Duration(float64(max(left, 0)) / e.SamplesPerSecond * float64(time.Second))
	}
	r.intervalAt, r.intervalNum = time.Now(), 0
	r.Observe(e)
}

// evaluate measures the held-out data, each sample once over all ranks.
func (r *run) evaluate(ctx context.Context) error {
	if r.eval == nil {
		return nil
	}
	size, world := int(r.train.Batch), r.Comm.Size()
	indices := make([]int, 0, size)
	var lossSum, correct, count float64
	flush := func() {
		n := len(indices)
		if n == 0 {
			return
		}
		x := rows(r.input.x, n)
		r.eval.Read(indices, x.Data, r.input.labels, r.input.targets)
		out := r.model.Forward(x)
		if r.eval.Classes() {
			lossSum += float64(n) * nn.CrossEntropy(out, r.input.labels[:n], nn.Matrix{})
			correct += float64(nn.Correct(out, r.input.labels[:n]))
		} else {
			lossSum += float64(n) * nn.MSE(out, r.input.targets[:n*out.Cols], nn.Matrix{})
		}
		count += float64(n)
		indices = indices[:0]
	}
	for i := r.Comm.Rank(); i < r.eval.Len(); i += world {
		if indices = append(indices, i); len(indices) == size {
			flush()
		}
	}
	flush()
	sums := []float64{lossSum, correct, count}
	if err := r.Comm.AllReduceFloat64(ctx, sums); err != nil {
		return fmt.Errorf("evaluate after epoch %d: %w", r.at.Epoch, err)
	}
	e := Event{Kind: Evaluated, Step: int(r.at.Step), Epoch: int(r.at.Epoch), Epochs: int(r.train.Epochs), Loss: sums[0] / sums[2], Accuracy: math.NaN()}
	r.last["eval_loss"] = e.Loss
	if r.eval.Classes() {
		e.Accuracy = sums[1] / sums[2]
		r.last["accuracy"] = e.Accuracy
	}
	r.Observe(e)
	return nil
}
