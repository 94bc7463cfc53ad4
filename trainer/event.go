package trainer

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/engine"
)

// Kind is the kind of an [Event].
type Kind string

// The kinds of events.
const (
	OnCPU             Kind = "processor"   // training runs on the CPU, not on a GPU; Err is the reason, GPUsRequested reports whether the job requests GPUs
	Fallback          Kind = "unmet"       // this rank's GPU does not support a requested feature and uses a fallback; Err names it
	Tuned             Kind = "tuned"       // rank 0: the algorithms of matrix multiplications were timed, with the result Algorithms
	Started           Kind = "start"       // rank 0: training begins at Step; Path is the checkpoint it resumes from
	Resized           Kind = "resized"     // rank 0: steps have NewStepSamples samples from now on, and had OldStepSamples before
	Relocated         Kind = "layout"      // rank 0: the checkpoint has the layout OldLayout, and the ranks have Layout
	Uncompared        Kind = "uncompared"  // rank 0: an older version, which did not compare the ranks, saved the checkpoint
	DecayKept         Kind = "decay-kept"  // rank 0: training resumes with train.optimizer.decay = "all", as an earlier version started it
	CheckpointSkipped Kind = "passed-over" // rank 0: a checkpoint is not usable and was skipped; Err is the reason
	Trained           Kind = "train"       // a logging interval has ended
	Skipped           Kind = "skip"        // a step was skipped; Err is the reason
	Idle              Kind = "idle"        // the learning rate will be 0 for the last Idle steps
	Evaluated         Kind = "eval"        // the held-out data were evaluated
	Saved             Kind = "save"        // rank 0: saved a checkpoint of Step, which may be before the current step, to Path
	Unsaved           Kind = "save-failed" // a checkpoint could not be written, or old ones not removed, and training continues; Err is the reason
	Unpinned          Kind = "unpinned"    // checkpoint.async copies from the GPU at reduced speed; Err is the reason
	LowSpace          Kind = "scarce"      // rank 0: the disk has too little space for all checkpoints to keep; Err has the sizes
	Traced            Kind = "trace"       // the steps to trace have ended, and Options.Trace can be written
	Stopped           Kind = "stop"        // training stopped on request and can be resumed
	Finished          Kind = "finish"      // all epochs are complete
)

// An Event reports something that an observer may want to display or record.
type Event struct {
	Kind                           Kind
	Step, Steps                    int // completed optimizer steps; total steps, an estimate after the number of ranks changes
	Epoch, Epochs                  int // current epoch from 0, and total; in Evaluated and Saved: completed epochs
	Loss                           float64
	Accuracy                       float64 // Evaluated: fraction of correct predictions, NaN for regression
	LR                             float64
	SamplesPerSecond               float64        // over all ranks
	TokensPerSecond                float64        // over all ranks; 0 if samples have no tokens
	StepTime                       time.Duration  // of a step on this rank, mean of the interval
	Remaining                      time.Duration  // estimate
	Took, Stalled                  time.Duration  // Saved: total time, and the part for which training waited
	Communication                  *Communication // Trained: nil with one rank
	Path                           string
	Idle                           int
	OldStepSamples, NewStepSamples int
	OldLayout                      string // as in checkpoint.Manifest
	Layout                         string
	GPUsRequested                  bool
	AlreadyDone                    bool // Finished: there was nothing to train
	Algorithms                     *engine.Algorithms
	Err                            error
}

// String formats the event as one line for users.
func (e Event) String() string {
	switch e.Kind {
	case OnCPU:
		text := fmt.Sprintf("training on the CPU: %v", e.Err)
		if e.GPUsRequested {
			return "warning: the job requests GPUs: " + text
		}
		return text
	case Fallback:
		return fmt.Sprintf("warning: %v", e.Err)
	case Tuned:
		saved, total := e.Algorithms.Saved()
		return fmt.Sprintf("timed the algorithms of %s on this GPU: the fastest take %.1f%% less time than cuBLASLt's defaults", format.Count(len(e.Algorithms.Products), "matrix multiplication"), 100*saved/max(total, math.SmallestNonzeroFloat64))
	case Started:
		if e.Path == "" {
			return fmt.Sprintf("training from the start, %s", format.Count(e.Epochs, "epoch"))
		}
		if e.Epoch > e.Epochs {
			return fmt.Sprintf("resuming after step %d (%s done, train.epochs = %d) from %s", e.Step, format.Count(e.Epoch, "epoch"), e.Epochs, e.Path)
		}
		return fmt.Sprintf("resuming after step %d (%d of %d epochs done) from %s", e.Step, e.Epoch, e.Epochs, e.Path)
	case Resized:
		return fmt.Sprintf("warning: samples per step changed from %d to %d: each sample of the epoch is still used once, but settings in steps, such as train.schedule, now refer to steps of the new size, and optimizer.lr is unchanged", e.OldStepSamples, e.NewStepSamples)
	case Uncompared:
		return fmt.Sprintf("note: an older ddpbatch saved step %d without comparing the weights of the ranks: if ranks differ later, resume from an earlier checkpoint", e.Step)
	case Relocated:
		return fmt.Sprintf("warning: the layout of the ranks (nodes x ranks per node) changed from %s to %s: sums have a different order, so the last bits of the weights may differ", e.OldLayout, e.Layout)
	case DecayKept:
		return "note: resuming with train.optimizer.decay = \"all\", as the checkpoint was trained: the run was started by an earlier version, or with this setting"
	case CheckpointSkipped:
		return fmt.Sprintf("warning: skipped a checkpoint: %v", e.Err)
	case Trained:
		rate := format.Number(e.SamplesPerSecond) + " samples/s"
		if e.TokensPerSecond > 0 {
			rate = format.Number(e.TokensPerSecond) + " tokens/s"
		}
		if c := e.Communication; c != nil && c.IsStraggler {
			rate += fmt.Sprintf("  (rank %d computes %.1f times as long as others)", c.Slowest, c.Ratio)
		}
		return fmt.Sprintf("epoch %d/%d  step %d/%d  loss %.4f  %s  %s left",
			e.Epoch+1, e.Epochs, e.Step, e.Steps, e.Loss, rate, rounded(e.Remaining))
	case Idle:
		return fmt.Sprintf("warning: the learning rate is 0 in the last %d of %d steps, which have no effect: check train.schedule.steps and floor", e.Idle, e.Steps)
	case Skipped:
		return fmt.Sprintf("warning: skipped step %d: %v", e.Step, e.Err)
	case Evaluated:
		if math.IsNaN(e.Accuracy) {
			return fmt.Sprintf("epoch %d/%d  held-out loss %.4f", e.Epoch, e.Epochs, e.Loss)
		}
		return fmt.Sprintf("epoch %d/%d  held-out loss %.4f  accuracy %.4f", e.Epoch, e.Epochs, e.Loss, e.Accuracy)
	case Saved:
		took := e.Took.Round(time.Millisecond).String()
		if e.Stalled < e.Took*9/10 {
			took += fmt.Sprintf(", of which training waited %s", e.Stalled.Round(time.Millisecond))
		}
		return fmt.Sprintf("saved step %d to %s (%s)", e.Step, e.Path, took)
	case Unsaved:
		return fmt.Sprintf("warning: %v; earlier checkpoints are intact, and training continues until the next save", e.Err)
	case Unpinned:
		return fmt.Sprintf("warning: training waits longer for checkpoints, because copies from the GPU use memory that is not pinned: %v", e.Err)
	case LowSpace:
		return fmt.Sprintf("warning: checkpoint.keep: %v", e.Err)
	case Traced:
		return fmt.Sprintf("recorded the timeline until step %d", e.Step)
	case Stopped:
		return fmt.Sprintf("stopped after step %d as requested; start the job again to resume", e.Step)
	case Finished:
		if e.AlreadyDone {
			return fmt.Sprintf("already finished: %s, %d steps; nothing to do", format.Count(e.Epoch, "epoch"), e.Step)
		}
		return fmt.Sprintf("finished: %s, %d steps", format.Count(e.Epochs, "epoch"), e.Step)
	}
	return string(e.Kind)
}

// rounded rounds an estimate to its precision.
func rounded(d time.Duration) time.Duration {
	if d > 10*time.Minute {
		return d.Round(time.Minute)
	}
	return d.Round(time.Second)
}

// The phases of a training run, as reported to the launcher.
const (
	phaseLoading    = "loading"
	phaseTraining   = "training"
	phaseEvaluating = "evaluating"
	phaseSaving     = "saving"
)

// Progress is this rank's progress. Other goroutines may read it at any time.
type Progress struct {
	step  atomic.Int64
	done  atomic.Uint64
	phase atomic.Pointer[string]
}

// Now returns the number of completed optimizer steps, the current phase, and a count that changes
// with every step and, during an evaluation, with every batch. The count is 0 before the first of
// these.
func (p *Progress) Now() (step int, phase string, done uint64) {
	phase = phaseLoading
	if at := p.phase.Load(); at != nil {
		phase = *at
	}
	return int(p.step.Load()), phase, p.done.Load()
}

// enter begins a phase. The function that it returns restores the previous phase.
func (p *Progress) enter(phase string) (leave func()) {
	before := p.phase.Swap(&phase)
	return func() { p.phase.Store(before) }
}
