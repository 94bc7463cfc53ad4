package submit

import (
	"context"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// sendChain submits the jobs of a chain that follow first and are not in the record. It returns the
// IDs of all jobs that follow.
//
// A job waits for the end of the job before it, whether or not that job succeeded (afterany): it may
// have reached its time limit, and a job that was killed reports a failure. The launcher of each job
// decides whether there is something to do. A job array of a sweep waits for all trials of the array
// before it: with aftercorr, a trial would start only after a trial that ended with exit code 0.
func (a *submission) sendChain(ctx context.Context, first rundir.Submission) (chain []string, err error) {
	chain, last := a.record.ChainAfter(first.JobID), first.JobID
	if len(chain) > 0 {
		last = chain[len(chain)-1]
	}
	for len(chain) < a.req.Chain-1 {
		next := first
		next.ID, next.JobID, next.Follows = rundir.NewSubmission().ID, "", last
		id, err := "", context.Cause(ctx)
		if err == nil {
			// Ignore interrupts until the record is written. Otherwise, the job ID could be lost.
			id, err = a.send(context.WithoutCancel(ctx), next, []slurm.Dependency{{Type: slurm.AfterAny, IDs: []string{last}}})
		}
		if err != nil {
			a.sent = true // Slurm has the jobs before it
			return chain, hints.Errorf("cancel them with `ddpbatch cancel`, or let them run and submit the run again later",
				"%d of %d jobs of the chain are submitted (%s): %w", len(chain)+1, a.req.Chain, strings.Join(append([]string{first.JobID}, chain...), ", "), err)
		}
		chain, last = append(chain, id), id
	}
	return chain, nil
}

// completeChain submits the jobs that are missing in the chain of a submission that was interrupted.
func (a *submission) completeChain(ctx context.Context, found rundir.Submission) (chain []string, err error) {
	if a.req.Chain > 1 {
		if a.script, err = a.req.Script(a.dir, found.Elements); err != nil {
			return nil, err
		}
	}
	return a.sendChain(ctx, found)
}
