// Package trainer trains a model on this rank's share of the data, in step with
// the other ranks of the job: distributed data parallel training, on processors or on
// a GPU for each rank.
//
// It promises: the same spec, seed, number of ranks and layout of the ranks on nodes give
// the same weights, bit for bit, also when the run was stopped or killed in between; weights, data order
// and updates are those of the same training in PyTorch, up to rounding; rank 0
// saves before the first step, so that a run that cannot save does not start; what is
// saved while training goes on is what would have been saved had it waited;
// when asked to stop, every rank stops after the same step and that step is
// saved; a finished run that is started again does nothing; a loss that is not
// finite ends the run before it can reach a checkpoint.
//
// It does not start ranks or connect them, prints nothing and writes nothing but
// checkpoints: what happens is told to an observer.
package trainer

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/cuda"
	"github.com/ddpbatch/ddpbatch/trainer/data"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/optim"
	"github.com/ddpbatch/ddpbatch/trainer/trace"
)

// Options are what a rank needs to train.
type Options struct {
	// Job has a [train] section and resolved paths.
	Job *jobs.Job
	// Run identifies the run directory: a checkpoint of another run is refused.
	Run string
	// Program is the version that checkpoints are signed with.
	Program string
	// Checkpoints is the folder that rank 0 saves to. Others look at it only where
	// each writes what it keeps: all of them must see the same folder then.
	Checkpoints string
	// CheckPlace, unless nil, reports that the folder around Checkpoints is no longer at its
	// path. Run calls it before each save, and ends with its error.
	CheckPlace func() error
	// Comm connects the ranks. Run does not close it.
	Comm collective.Communicator
	// Threads is the number of threads to compute on, at most; 0 is one for each core.
	Threads int
	// LocalRanks is the number of ranks that share this machine's memory; 0 is one.
	LocalRanks int
	// Node is the number of this rank's machine in the job.
	Node int
	// Look tells which GPUs this rank may use; nil asks the driver. VisibleDevices,
	// unless nil, is CUDA_VISIBLE_DEVICES, for messages.
	Look           func() (cuda.Found, error)
	VisibleDevices *string
	// LaunchBlocking says that CUDA_LAUNCH_BLOCKING is set: a GPU does operations one by
	// one, so that the one that fails is named, and not in graphs.
	LaunchBlocking bool
	// WGMMA asks for attention by the instructions that only Hopper has; see
	// cuda.Options.
	WGMMA bool
	// Libraries says where a library of NVIDIA's with one of some names may be; nil is
	// where the dynamic linker looks.
	Libraries func(names ...string) []string
	// Connect connects this rank's GPU with those of all others; every rank calls it when
	// each has opened its own. A result that is an io.Closer is closed before the GPU.
	// nil is by way of the hosts' memory.
	Connect func(ctx context.Context, gpu device.Device) (ddp.Communicator, error)
	// Stop, once closed on any rank, has all ranks stop after the same step. If the data are
	// being read or a checkpoint is being verified, they stop before the first step.
	Stop <-chan struct{}
	// Progress, unless nil, is kept up to date.
	Progress *Progress
	// Trace, unless nil, records the steps that it is for.
	Trace *trace.Recorder
	// Observe is called with what happens, on the training goroutine.
	Observe func(Event)
}

// Result is how a run ended.
type Result struct {
	Step int
	// Stopped says that the run was asked to stop and can be resumed.
	Stopped bool
	// Already says that there was nothing left to train.
	Already bool
}

// run is one rank's state.
type run struct {
	Options
	train     *jobs.Train
	device    device.Device
	between   ddp.Communicator // ranks, for what is on the device
	uploaded  uploaded
	data      data.Dataset
	eval      data.Dataset // nil when there is none
	loader    *data.Loader
	evalLoad  *data.Loader
	model     nn.Model
	batch     int // samples that are computed at once, at most: no more than there are
	params    []*nn.Param
	optimizer optim.Optimizer
	schedule  optim.Schedule
	sharder   *ddp.Sharder
	ready     func(param int) // sharder.Ready, once: making it allocates
	none      func(param int) // ready of a gradient that is nothing, whatever was computed
	at        position
	layout    string             // see checkpoint.Manifest
	skipped   int                // steps in a row that were left out
	good      map[int]bool       // what is known of the checkpoints, see checkpoint.Prune
	last      map[string]float64 // last figures, for the manifest
	best      float64            // metric of checkpoint.keep_best so far
	perEpoch  int                // steps of a whole epoch
	ofEpoch   int                // steps left in the present one
	interval  interval
	straggler straggler
	later     *later    // nil where the host waits for each step
	behind    *saving   // the save that goes on while training does, nil where there is none
	copies    []float32 // memory for it
}

// position is how far training has come.
type position struct {
	Step     int64 // optimiser steps done
	Epoch    int64 // epoch of the next step
	Consumed int64 // samples of that epoch taken by all ranks
	// Unevaluated says that the epoch before has ended and its evaluation has not.
	Unevaluated bool
}

// Run trains until the job's epochs are done or Stop is closed.
func Run(ctx context.Context, o Options) (result Result, err error) {
	defer device.Recover(&err)
	if o.Progress == nil {
		o.Progress = new(Progress)
	}
	r := &run{Options: o, train: o.Job.Train, last: map[string]float64{}, good: map[int]bool{}}
	defer func() {
		if e := r.release(); err == nil {
			err = e
		}
	}()
	if err := r.build(ctx); errors.Is(err, errStopped) {
		return Result{Stopped: true}, nil
	} else if err != nil {
		return Result{}, err
	}
	defer r.loader.Stop()
	if err := r.agreeOnData(ctx); err != nil {
		return Result{}, err
	}
	if err := r.findLayout(ctx); err != nil {
		return Result{}, err
	}
	if err := r.start(ctx); errors.Is(err, errStopped) {
		return Result{Stopped: true}, nil
	} else if err != nil {
		return Result{}, err
	}
	if r.finished() {
		r.Observe(Event{Kind: Finished, Step: int(r.at.Step), Epoch: int(r.at.Epoch), Epochs: int(r.train.Epochs), Already: true})
		return Result{Step: int(r.at.Step), Already: true}, nil
	}
	r.warnOfIdleSteps()
	r.Progress.enter(phaseTraining) // and not left: who asks after a failure hears where it was
	defer r.leave()
	stopped, err := r.loop(ctx)
	if err != nil {
		return Result{}, err
	}
	// No rank leaves before rank 0 has saved: a failure to save must be seen
	// as the failure of the run, not of a rank that the others left behind.
	if err := o.Comm.Do(ctx, collective.Barrier()); err != nil {
		return Result{}, err
	}
	r.endTrace()
	kind := Finished
	if stopped {
		kind = Stopped
	}
	r.Observe(Event{Kind: kind, Step: int(r.at.Step), Epoch: int(r.at.Epoch), Epochs: int(r.train.Epochs)})
	return Result{Step: int(r.at.Step), Stopped: stopped}, nil
}

func (r *run) finished() bool {
	return r.at.Epoch >= int64(r.train.Epochs) && !r.at.Unevaluated
}

// agreeOnData has every rank compare its data with rank 0's: a rank that trains
// on other data would spoil the model in silence, one that evaluates on others its
// accuracy.
func (r *run) agreeOnData(ctx context.Context) error {
	for _, part := range []struct {
		what string
		data data.Dataset
	}{{"training", r.data}, {"held-out", r.eval}} {
		digest := strings.Repeat("0", 64) // there are none
		if part.data != nil {
			digest = part.data.Digest()
		}
		zero := []byte(digest)
		if err := r.Comm.Do(ctx, collective.Broadcast(zero, 0)); err != nil {
			return err
		}
		if digest != string(zero) {
			return fmt.Errorf("the %s data of this rank differ from rank 0's (digest %.12s, not %.12s)", part.what, digest, zero)
		}
	}
	return nil
}
