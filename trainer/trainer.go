// Package trainer trains a model on one rank's share of the data, together with the other ranks of
// the job: distributed data-parallel training, on CPUs or with one GPU per rank.
//
// It guarantees:
//
//   - The same spec, seed, number of ranks, and layout of ranks on nodes give bit-identical
//     weights, also if the run was stopped or killed in between.
//   - Weights, data order, and updates equal PyTorch's, up to rounding.
//   - A new run saves before its first step, so that a run that cannot save does not start.
//   - An async checkpoint has the same contents as a synchronous one.
//   - After a stop request, every rank stops after the same step, and that step is saved.
//   - A finished run that is started again does nothing.
//   - A step with a loss or gradient that is not finite never changes the weights. It stops the
//     run or, with train.nonfinite = "skip", is skipped.
//
// [Run] first sets up the run: build.go, data.go, device.go, memory.go, weights.go, resume.go, and tune.go. It
// then runs the loop (loop.go) of steps (step.go) and evaluations (evaluate.go). monitor.go measures
// the steps. data.go also divides the samples of an epoch into steps and micro-batches.
//
// It does not start or connect ranks and prints nothing. It writes nothing but checkpoints and, in
// the run directory, the scan of token files and the fastest algorithms of cuBLASLt. It reports events to an observer.
package trainer

import (
	"context"
	"errors"
	"os"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/cuda"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/engine"
	"github.com/ddpbatch/ddpbatch/trainer/data"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/trace"
)

// Options configures one rank of a training run.
type Options struct {
	// Job has a [train] section and resolved paths.
	Job *jobs.Job
	// Run identifies the run directory. Checkpoints of other runs are rejected.
	Run string
	// Program is the version recorded in checkpoints.
	Program string
	// Checkpoints is the directory that rank 0 saves to. With a sharded strategy all ranks write to
	// it and must see the same directory.
	Checkpoints string
	// RunDir is the run directory. In it, ranks store what a read of all token files has found, so
	// that later attempts start without it, and rank 0 the fastest algorithms of cuBLASLt. If nil,
	// nothing is stored.
	RunDir *os.Root
	// CheckRunDir, unless nil, returns an error if the parent directory of Checkpoints has been
	// moved or deleted. Run calls it before each save and returns its error.
	CheckRunDir func() error
	// Comm connects the ranks. Run does not close it.
	Comm collective.Communicator
	// Threads is the maximum number of compute threads; 0 means one per core.
	Threads int
	// LocalRanks is the number of ranks that share this machine's memory; 0 means 1.
	LocalRanks int
	// Node is the node rank.
	Node int
	// FindGPUs returns the GPUs that this rank may use; nil queries the driver. VisibleDevices,
	// unless nil, is CUDA_VISIBLE_DEVICES, for messages.
	FindGPUs       func() (cuda.Found, error)
	VisibleDevices *string
	// LaunchBlocking reports that CUDA_LAUNCH_BLOCKING is set: the GPU runs operations one at a
	// time and without graphs, so that an error names the operation that failed.
	LaunchBlocking bool
	// Attention selects the instructions of attention on a GPU in bfloat16.
	Attention engine.Attention
	// DisabledFusions contains the fusions that matrix multiplications on a GPU do not use.
	DisabledFusions engine.Fusion
	// Libraries returns candidate paths for an NVIDIA library with one of the given names. If nil,
	// the dynamic linker searches for it.
	Libraries func(names ...string) []string
	// Connect connects this rank's GPU with the GPUs of all other ranks. Every rank calls it after
	// each has opened its GPU. The result is closed before the GPU. If nil, data is exchanged through
	// host memory.
	Connect func(ctx context.Context, gpu *cuda.GPU) (ddp.Communicator, error)
	// When Stop is closed on any rank, all ranks stop after the same step. While the data are read
	// or a checkpoint is verified, they stop before the first step.
	Stop <-chan struct{}
	// Progress, unless nil, is kept up to date.
	Progress *Progress
	// Trace, unless nil, records the steps it is configured for.
	Trace *trace.Recorder
	// Observe is called with each event, on the training goroutine. It must not be nil.
	Observe func(Event)
	// Failed, unless nil, is called with the error of Run before the GPU's communicator is closed,
	// which may take seconds after a failure.
	Failed func(error)
}

// Result is the result of a run.
type Result struct {
	// Step is the number of completed optimizer steps. It is 0 if the run stopped before it had
	// loaded the data and its state.
	Step int
	// Stopped reports that the run stopped on request and can be resumed.
	Stopped bool
	// AlreadyDone reports that there was nothing left to train.
	AlreadyDone bool
}

// run is the setup of one rank.
type run struct {
	Options
	train      *jobs.Train
	device     device.Device
	gpu        *cuda.GPU        // the device, if it is a GPU
	unbind     func()           // unbinds the GPU from this goroutine, or nil
	deviceComm ddp.Communicator // process group for device memory
	data       data.Dataset
	eval       data.Dataset // nil without held-out data
	model      nn.Model
	batch      int    // maximum samples per micro-batch, at most a rank's share of the larger data set
	layout     string // of the ranks on nodes, see checkpoint.Manifest
	loop       loop   // set by build

	roundsWeights bool // there is memory for nn.Param.Rounded
}

// Run trains until all epochs of the job are complete or Stop is closed. Every rank must call it with
// the same job.
func Run(ctx context.Context, o Options) (result Result, err error) {
	defer device.Recover(&err) // a failure of the device while it is released
	r := newRun(o)
	l := &r.loop
	defer r.end(&err)
	defer device.Recover(&err)
	for _, setUp := range []func(context.Context) error{r.build, r.checkSameData, r.start, r.tune} {
		if err := setUp(ctx); errors.Is(err, errStopped) {
			return Result{Stopped: true}, nil
		} else if err != nil {
			return Result{}, err
		}
	}
	defer l.loader.Stop()
	finished := l.event(Finished)
	if l.isFinished() {
		finished.AlreadyDone = true
		r.Observe(finished)
		return Result{Step: finished.Step, AlreadyDone: true}, nil
	}
	l.warnZeroRate(r.train.Optimizer.LR)
	r.Progress.enter(phaseTraining) // never left: after a failure, the phase shows where it happened
	defer l.saver.Close()
	stopped, err := l.run(ctx)
	if err != nil {
		return Result{}, err
	}
	l.endTrace()
	kind := Finished
	if stopped {
		kind = Stopped
	}
	r.Observe(l.event(kind))
	return Result{Step: int(l.pos.Step), Stopped: stopped}, nil
}

// end reports the error of a run, and then releases what it holds.
func (r *run) end(err *error) {
	if *err != nil && r.Failed != nil {
		r.Failed(*err)
	}
	if e := r.release(); *err == nil {
		*err = e
	}
}

// newRun returns a run without its device, data, and model.
func newRun(o Options) *run {
	if o.Progress == nil {
		o.Progress = new(Progress)
	}
	return &run{Options: o, train: o.Job.Train}
}
