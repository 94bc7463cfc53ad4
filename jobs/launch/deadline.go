package launch

import (
	"context"
	"strconv"
	"time"
)

// maxTimeLimitInterval is the longest interval between checks of the remaining time. The end time may be
// unknown at first. Slurm also measures a limit by the wall clock, and the clock may be
// adjusted.
const maxTimeLimitInterval = time.Minute

// watchTimeLimit returns a channel that is closed signal_before_end before the job's time limit. It
// returns nil without Slurm or without signal_before_end. Slurm's own signal usually arrives
// earlier, but Slurm sends it only to a batch script that requests it: not inside salloc, and
// not to a user's own script.
func (o Options) watchTimeLimit(ctx context.Context) <-chan struct{} {
	before := time.Duration(o.Job.Slurm.SignalBeforeEnd)
	if o.Allocation == nil || before == 0 {
		return nil
	}
	near := make(chan struct{})
	go func() {
		end, known := o.initialEndTime()
		for {
			wait := maxTimeLimitInterval
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
			// The limit may have changed.
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

// initialEndTime returns the end time that Slurm passed at the start of the job (Slurm 23.02 or
// later).
func (o Options) initialEndTime() (end time.Time, known bool) {
	text, _ := lookupIn(o.Environ)("SLURM_JOB_END_TIME")
	seconds, err := strconv.ParseInt(text, 10, 64)
	return time.Unix(seconds, 0), err == nil
}
