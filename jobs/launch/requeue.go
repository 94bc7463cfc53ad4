package launch

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// stoppedOnRequest reports whether the ranks ended because they were asked to stop. The built-in
// trainer ends with 0 only if it has completed the training anyway.
func (a *attempt) stoppedOnRequest(r Result) bool {
	requested := a.stopped || r.Preempted
	return requested && r.Failure == nil && stopCodesOf(a.o.Job).has(r.Exit) && (r.Exit != 0 || a.o.Job.Command != nil)
}

// queryTimeout limits a query to the controller whose answer is not essential to the job.
const queryTimeout = 10 * time.Second

// requeueTimeout limits the requeue. A controller that restarts takes one or two minutes.
// Close to the time limit, Slurm kills the launcher earlier.
const requeueTimeout = 5 * time.Minute

// finalizeResult adds to the result of an attempt the facts that decide whether the job is
// requeued. It sets the exit code of a program that must continue after a requeue to exitStopped.
func (o Options) finalizeResult(ctx context.Context, r Result, saved *progress) Result {
	if o.Allocation == nil || r.Exit == exitCanceled || r.Exit == 0 && o.Job.Train != nil {
		return r
	}
	preemption := o.queryPreemption(ctx)
	r.SlurmRequeues = preemption == slurm.PreemptedRequeued
	r.Preempted = preemption == slurm.Preempted || r.SlurmRequeues
	if o.Job.Restart.Requeue > 0 || o.Job.Restart.OnFailure > 0 {
		r.Progress = saved.advancedSinceStart() || saved.programAdvanced()
	}
	// A program that was asked to stop may end with any of these codes. It is not complete.
	requested := r.Preempted || r.NearEnd && o.Job.Restart.Requeue > 0
	if requested && r.Failure == nil && o.Job.Command != nil && stopCodesOf(o.Job).has(r.Exit) {
		r.Exit = exitStopped
		if r.StopUnhandled {
			// Print this before the requeue, because Slurm then kills this process.
			o.Say("warning: no progress: the program does not handle the stop signal, so it saved nothing when it was stopped; handle " + signalsToHandle(o.Job) + ", save, and exit with code 3")
		}
	}
	return r
}

// printStop prints how to continue a program that has stopped as requested, unless its job is
// requeued. The built-in trainer prints this itself.
func (o Options) printStop(r Result) {
	if o.Job.Command == nil || !r.Stopped || r.Preempted || r.NodesLost || r.NearEnd && o.Job.Restart.Requeue > 0 {
		return
	}
	advice := outcome.SaveAdvice(r.ReportedSave, r.StopUnhandled, "start")
	if r.NotStarted {
		advice = outcome.NotStartedAdvice("start")
	}
	o.Say("stopped as requested: " + advice)
}

// queryPreemption queries Slurm whether it preempts the job while the job still has its nodes. The
// ranks may notice the preemption earlier: Slurm sends SIGTERM to a job in its GraceTime, but
// only to the steps of the job.
func (o Options) queryPreemption(ctx context.Context) slurm.Preemption {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), queryTimeout)
	defer cancel()
	p, err := o.Slurm.Preemption(ctx, o.Allocation.ID(), o.Allocation.RestartCount)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return slurm.NotPreempted // without Slurm's commands, this process could not requeue the job either
	case err != nil:
		o.Say(fmt.Sprintf("warning: cannot determine whether the job is preempted: %v", err))
	case p == slurm.AllocationRevoked:
		o.Say("Slurm has revoked the allocation, and decides whether to requeue the job")
	}
	return p
}

// Requeue requeues a job that is not complete and cannot continue in this allocation:
//
//   - The time limit is near, at most restart.requeue times. The built-in trainer must have a newer
//     checkpoint than at the start.
//   - The job failed, at most restart.on_failure times and only if there was progress.
//   - Slurm preempts the job, or too few nodes are left.
//
// Slurm kills the batch script when it requeues the job, so the caller must have finished all other
// work. If Requeue does not requeue the job, or if Slurm does not respond, it reports the reason
// through o.Say.
func Requeue(ctx context.Context, o Options, r Result) {
	if o.Allocation == nil {
		return
	}
	id, limit := o.Allocation.ID(), o.Job.Restart.Requeue
	why := fmt.Sprintf("%d of %d", o.Allocation.RestartCount+1, limit)
	switch {
	case r.SlurmRequeues:
		o.Say(fmt.Sprintf("Slurm requeues job %s when this script ends (it is preempted)", id))
		return
	case r.Preempted:
		why = "it is preempted"
	case r.NodesLost:
		why = "too few nodes are left"
	case o.Job.Restart.OnFailure > 0 && r.Failure != nil && !r.StopRequested && r.Exit != exitCanceled && o.Dir.CheckPlace() == nil:
		limit := o.Job.Restart.OnFailure
		switch {
		case o.Allocation.RestartCount >= limit:
			o.Say(fmt.Sprintf("warning: not requeued: the job has been restarted %d times, and restart.on_failure is %d; submit it again to resume", o.Allocation.RestartCount, limit))
			return
		case !r.Progress && o.Job.Train != nil:
			o.Say("warning: not requeued after the failure: there is no newer checkpoint than when the job started")
			return
		case !r.Progress:
			o.Say("warning: not requeued after the failure: the program reported no later step than in earlier attempts")
			return
		}
		why = fmt.Sprintf("after a failure, %d of %d", o.Allocation.RestartCount+1, limit)
	case limit == 0 || !r.NearEnd || r.Failure != nil || r.Exit != exitStopped:
		return // not requested, complete, or failed
	case o.Allocation.RestartCount >= limit:
		o.Say(fmt.Sprintf("warning: not requeued: the job has been restarted %d times, and restart.requeue is %d; submit it again to resume", o.Allocation.RestartCount, limit))
		return
	case o.Job.Train != nil && !r.Progress:
		o.Say("warning: not requeued: there is no newer checkpoint than when the job started; increase slurm.time, or decrease checkpoint.every")
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requeueTimeout)
	defer cancel()
	err := o.Slurm.Requeue(ctx, id, o.Allocation.RestartCount)
	switch {
	case errors.As(err, new(*slurm.NoReplyError)):
		o.Say(fmt.Sprintf("warning: cannot determine whether the job is requeued: %v; run `squeue --jobs=%s`, and submit the job again if it is not listed", err, id))
		return
	case err != nil:
		o.Say(fmt.Sprintf("warning: not requeued: %v; submit it again to resume", err))
		return
	}
	// If the launcher is killed before it records the requeue, readers of the file see it from
	// the next attempt, which has the same job ID and a higher restart count.
	o.Say(fmt.Sprintf("requeued as job %s (%s)", id, why))
	o.recordEvent(rundir.AttemptEvent{Event: rundir.JobRequeued, Time: time.Now().UTC(), JobID: id, Requeues: o.Allocation.RestartCount, Cause: why})
}

// maxTimeLimitInterval is the longest interval between checks of the remaining time. The end time
// may be unknown at first. Slurm also measures a limit by the wall clock, and the clock may be
// adjusted.
const maxTimeLimitInterval = time.Minute

// watchTimeLimit returns a channel that is closed signal_before_end before the job's time limit.
// It returns nil without Slurm or without signal_before_end. Slurm's own signal usually arrives
// earlier, but Slurm sends it only to a batch script that requests it: not inside salloc, and not
// to a user's own script.
func (o Options) watchTimeLimit(ctx context.Context) <-chan struct{} {
	margin := time.Duration(o.Job.Slurm.SignalBeforeEnd)
	if o.Allocation == nil || margin == 0 {
		return nil
	}
	near := make(chan struct{})
	go func() {
		end, known := jobEnd(o.Environ)
		for {
			wait := maxTimeLimitInterval
			if known {
				wait = min(wait, time.Until(end.Add(-margin)))
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			if known && time.Until(end.Add(-margin)) > 0 {
				continue
			}
			// The limit may have changed.
			current, err := o.Slurm.EndTime(ctx, o.Allocation.ID())
			switch {
			case err == nil && current.IsZero():
				return // there is no limit
			case known && (err != nil || time.Until(current) <= margin+time.Second):
				close(near)
				return
			case err == nil:
				end, known = current, true
			}
		}
	}()
	return near
}

// jobEnd returns the end time of the job from its environment (Slurm 23.02 or later). The time limit
// may have changed since.
func jobEnd(environ []string) (end time.Time, known bool) {
	text, _ := lookupIn(environ)("SLURM_JOB_END_TIME")
	seconds, err := strconv.ParseInt(text, 10, 64)
	return time.Unix(seconds, 0), err == nil
}
