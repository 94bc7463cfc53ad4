package launch

import (
	"context"
	"strconv"
	"time"
)

// lookAgain is how long to wait at most before the time is looked at again: while it is
// not known when the job ends, and since Slurm counts a limit by the time of day, which
// may be set anew.
const lookAgain = time.Minute

// nearEnd is closed when the job's time limit is signal_before_end away. Slurm's own
// signal comes earlier as a rule, but only to a batch script that has asked for it: not
// inside salloc, and not to a script of the user's own. It may be nil.
func (o Options) nearEnd(ctx context.Context) <-chan struct{} {
	before := time.Duration(o.Job.Slurm.SignalBeforeEnd)
	if o.Allocation == nil || before == 0 {
		return nil
	}
	near := make(chan struct{})
	go func() {
		end, known := o.startEnd()
		for {
			wait := lookAgain
			if known {
				wait = min(wait, time.Until(end.Add(-before)))
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			if known && time.Until(end.Add(-before)) > 0 {
				continue
			}
			// The limit may have been changed since.
			now, err := o.Slurm.EndTime(ctx, o.Allocation.ID())
			switch {
			case err == nil && now.IsZero():
				return // there is no limit
			case known && (err != nil || time.Until(now) <= before+time.Second):
				close(near)
				return
			case err == nil:
				end, known = now, true
			}
		}
	}()
	return near
}

// startEnd is when the job ends as Slurm has told at its start (from 23.02 on).
func (o Options) startEnd() (end time.Time, known bool) {
	text, _ := lookupIn(o.Environ)("SLURM_JOB_END_TIME")
	seconds, err := strconv.ParseInt(text, 10, 64)
	return time.Unix(seconds, 0), err == nil
}
