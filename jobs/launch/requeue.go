package launch

import (
	"context"
	"fmt"
	"slices"
	"syscall"
)

// stoppedCodes are the exit codes with which a program may end that was asked to stop:
// done, stopped (this program's own code), or killed by what asked it. Any other one is
// a failure, and would be again.
var stoppedCodes = []int{0, exitStopped, 128 + int(syscall.SIGUSR1), 128 + int(syscall.SIGTERM)}

// Requeue puts a job that was stopped since its time limit is near, and has more to do,
// back into the queue, as often as the job's [restart] allows and only while it comes
// further. Slurm ends the batch script by it: nothing may be left to do. What it does
// not do, and why, is told.
func Requeue(ctx context.Context, o Options, r Result) {
	most := int(o.Job.Restart.Requeue)
	if most == 0 || o.Allocation == nil || !r.NearEnd || r.Failure != nil {
		return
	}
	switch {
	case o.Job.Train != nil && r.Exit != exitStopped, o.Job.Command != nil && !slices.Contains(stoppedCodes, r.Exit):
		return // it is finished, or has failed
	case o.Allocation.RestartCount >= most:
		o.Say(fmt.Sprintf("WARNING: not requeued: the job has been started %d times again, and restart.requeue is %d; submit it again to go on", o.Allocation.RestartCount, most))
		return
	case o.Job.Train != nil && !r.Progress:
		o.Say("WARNING: not requeued: there is no newer checkpoint than when the job started; slurm.time is too short, or checkpoint.every too long")
		return
	}
	if err := o.Slurm.Requeue(ctx, o.Allocation.ID()); err != nil {
		o.Say(fmt.Sprintf("WARNING: not requeued: %v; submit it again to go on", err))
		return
	}
	o.Say(fmt.Sprintf("requeued as job %s (%d of %d)", o.Allocation.ID(), o.Allocation.RestartCount+1, most))
}
