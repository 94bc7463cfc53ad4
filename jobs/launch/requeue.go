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

// requeueTimeout bounds the requeue. A controller that restarts takes a minute or two. At
// the time limit Slurm ends the launcher earlier.
const requeueTimeout = 5 * time.Minute

// conclude adds to an attempt's end what decides whether the job goes on elsewhere.
func (o Options) conclude(ctx context.Context, r Result, saved *progress) Result {
	if o.Allocation == nil || r.Exit == exitCancelled || r.Exit == 0 && o.Job.Train != nil {
		return r
	}
	preemption := o.preempted(ctx)
	r.SlurmRequeues = preemption == slurm.PreemptedRequeued
	r.Preempted = preemption == slurm.Preempted || r.SlurmRequeues
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

// preempted asks Slurm whether it preempts the job, and the job still has its nodes. The
// ranks may know first: to a job in its GraceTime Slurm sends SIGTERM, but only to the
// steps of the job.
func (o Options) preempted(ctx context.Context) slurm.Preemption {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer cancel()
	p, err := o.Slurm.Preemption(ctx, o.Allocation.ID(), o.Allocation.RestartCount)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return slurm.NotPreempted // no Slurm here to preempt the job, or to requeue it
	case err != nil:
		o.Say(fmt.Sprintf("WARNING: whether the job is preempted is not known: %v", err))
	case p == slurm.AllocationRevoked:
		o.Say("Slurm takes the job's nodes back: what becomes of it is Slurm's to say")
	}
	return p
}

// Requeue puts a job back into the queue that has more to do and cannot continue here:
// because its time limit is near (as often as the job's [restart] allows, and only while
// there is progress), because it is preempted, or because nodes were lost. Slurm ends the
// batch script when it requeues the job, so nothing may be left to do. If Requeue does
// not requeue the job, it says why. If Slurm does not answer, it says that.
func Requeue(ctx context.Context, o Options, r Result) {
	if o.Allocation == nil {
		return
	}
	id, most := o.Allocation.ID(), int(o.Job.Restart.Requeue)
	why := fmt.Sprintf("%d of %d", o.Allocation.RestartCount+1, most)
	switch {
	case r.SlurmRequeues:
		o.Say(fmt.Sprintf("Slurm requeues job %s when this script ends (it is preempted)", id))
		return
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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requeueTimeout)
	defer cancel()
	err := o.Slurm.Requeue(ctx, id, o.Allocation.RestartCount)
	switch {
	case errors.As(err, new(*slurm.NoReplyError)):
		o.Say(fmt.Sprintf("WARNING: whether the job is requeued is not known: %v; `squeue --jobs=%s` tells, and if it is not there, submit it again", err, id))
		return
	case err != nil:
		o.Say(fmt.Sprintf("WARNING: not requeued: %v; submit it again to go on", err))
		return
	}
	// If the launcher is killed before it can keep this, readers of the file see the
	// requeue from the next attempt, which has the same job and a higher count.
	o.Say(fmt.Sprintf("requeued as job %s (%s)", id, why))
	o.keep(rundir.AttemptEvent{Event: rundir.JobRequeued, Time: time.Now().UTC(), JobID: id, Requeues: o.Allocation.RestartCount, Cause: why})
}
