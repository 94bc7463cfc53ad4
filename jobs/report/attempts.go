package report

import (
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
)

// Attempt is one life of all ranks.
type Attempt struct {
	Begin    rundir.AttemptEvent
	End      *rundir.AttemptEvent // nil where it runs, or its launcher was killed
	Requeued string               // why the launcher put its job back afterwards; empty if it did not
}

// Took is how long it lasted; 0 where its end is not known.
func (a Attempt) Took() time.Duration {
	if a.End == nil {
		return 0
	}
	return a.End.Time.Sub(a.Begin.Time)
}

// attemptsOf puts beginnings and ends together. An end whose beginning is lost is an
// attempt, too.
func attemptsOf(events []rundir.AttemptEvent) []Attempt {
	var all []Attempt
	for _, e := range events {
		last := len(all) - 1
		switch e.Event {
		case rundir.AttemptBegan:
			all = append(all, Attempt{Begin: e})
		case rundir.AttemptEnded:
			if last < 0 || all[last].End != nil {
				all = append(all, Attempt{Begin: e})
				last++
			}
			all[last].End = &e
		case rundir.JobRequeued:
			if last >= 0 {
				all[last].Requeued = e.Cause
				if e.Cause == "" {
					all[last].Requeued = "yes"
				}
			}
		}
	}
	return all
}
