package launch

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// stoppedCodes are the exit codes with which a program may end that was asked to stop:
// done, stopped (this program's own code), or killed by what asked it. Any other one is
// a failure, and would be again.
var stoppedCodes = []int{0, exitStopped, 128 + int(syscall.SIGUSR1), 128 + int(syscall.SIGTERM)}

// endedAsAsked reports whether the ranks ended because they were asked to stop. The built-in
// trainer ends with 0 only if it has finished all the same.
func (a *attempt) endedAsAsked(r Result) bool {
	asked := a.stopped || r.Preempted
	return asked && r.Failure == nil && slices.Contains(stoppedCodes, r.Exit) && (r.Exit != 0 || a.o.Job.Command != nil)
}

// askTimeout bounds a question to the controller that a job could do without.
const askTimeout = 10 * time.Second

// conclude adds to an attempt's end what decides whether the job goes on elsewhere.
func (o Options) conclude(ctx context.Context, r Result, saved *progress) Result {
	if o.Allocation == nil || r.Exit == exitCancelled || r.Exit == 0 && o.Job.Train != nil {
		return r
	}
	r.Preempted = o.preempted(ctx)
	r.Progress = o.Job.Restart.Requeue > 0 && saved.since()
	// A program that was asked to stop says so in many ways; it is not finished.
	told := r.Preempted || r.NearEnd && o.Job.Restart.Requeue > 0
	if told && r.Failure == nil && o.Job.Command != nil && slices.Contains(stoppedCodes, r.Exit) {
		r.Exit = exitStopped
		if r.StopUnhandled {
			// Said before the requeue, with which Slurm kills this process.
			o.Say("WARNING: no progress: the program does not handle the stop signal, so it saved nothing when it was stopped; handle SIGUSR1 and SIGTERM, save, and end with exit code 3")
		}
	}
	return r
}

// preempted asks Slurm whether the job is, and still has its nodes. Ranks may know it
// before the launcher: to a job in its GraceTime Slurm sends SIGTERM, but only to its
// steps.
func (o Options) preempted(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer cancel()
	p, err := o.Slurm.Preemption(ctx, o.Allocation.ID(), o.Allocation.RestartCount)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return false // no Slurm here to take anything away, or to ask for a requeue
	case err != nil:
		o.Say(fmt.Sprintf("WARNING: whether the job is preempted is not known: %v", err))
	case p == slurm.TakenBack:
		o.Say("Slurm takes the job's nodes back: what becomes of it is Slurm's to say")
	}
	return p == slurm.Preempted
}

// Requeue puts a job back into the queue that has more to do and cannot go on here:
// since its time limit is near, as often as the job's [restart] allows and only while
// it comes further; since it is preempted; or since nodes were lost. Slurm ends the
// batch script by it: nothing may be left to do. What it does not do, and why, is told.
func Requeue(ctx context.Context, o Options, r Result) {
	if o.Allocation == nil {
		return
	}
	most := int(o.Job.Restart.Requeue)
	why := fmt.Sprintf("%d of %d", o.Allocation.RestartCount+1, most)
	switch {
	case r.Preempted:
		why = "it is preempted"
	case r.NodesLost:
		why = "too few nodes are left"
	case most == 0 || !r.NearEnd || r.Failure != nil || r.Exit != exitStopped:
		return // not asked for, finished, or failed
	case o.Allocation.RestartCount >= most:
		o.Say(fmt.Sprintf("WARNING: not requeued: the job has been started %d times again, and restart.requeue is %d; submit it again to go on", o.Allocation.RestartCount, most))
		return
	case o.Job.Train != nil && !r.Progress:
		o.Say("WARNING: not requeued: there is no newer checkpoint than when the job started; slurm.time is too short, or checkpoint.every too long")
		return
	}
	if err := o.Dir.CheckPlace(); err != nil {
		o.Say(fmt.Sprintf("WARNING: not requeued: %v", err))
		return
	}
	if err := o.Slurm.Requeue(ctx, o.Allocation.ID()); err != nil {
		o.Say(fmt.Sprintf("WARNING: not requeued: %v; submit it again to go on", err))
		return
	}
	o.Say(fmt.Sprintf("requeued as job %s (%s)", o.Allocation.ID(), why))
	o.keep(rundir.AttemptEvent{Event: rundir.JobRequeued, Time: time.Now().UTC(), JobID: o.Allocation.ID(), Requeues: o.Allocation.RestartCount, Cause: why})
}
