package runs

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/exitcode"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// CancelJob cancels the last job of a run. The caller holds the run with [Run.OpenOwn]. If the
// job has already ended, CancelJob returns its state and does nothing.
func (s *Store) CancelJob(ctx context.Context, run Run) (ended *slurm.JobState, err error) {
	id, err := run.Job()
	if err != nil {
		return nil, err
	}
	// If Slurm does not return a state, try to cancel the job anyway.
	states, stateErr := s.client(run).State(ctx, id)
	if stateErr == nil && states[0].Done() {
		return &states[0], nil
	}
	if err := s.checkJob(ctx, run); err != nil {
		return nil, err
	}
	if err := s.Slurm.Cancel(ctx, id); err != nil {
		return nil, err
	}
	if stateErr == nil {
		s.recordCancellation(run, states[0])
	}
	return nil, nil
}

// CancelChain cancels the jobs that follow the last job of a run in a chain, last first, so that
// none of them starts meanwhile. The caller holds the run with [Run.OpenOwn]. It returns the jobs
// that it has canceled, also with an error, in the order of the chain.
func (s *Store) CancelChain(ctx context.Context, run Run) (canceled []string, err error) {
	defer func() { slices.Reverse(canceled) }()
	for _, sub := range slices.Backward(run.Record.Chain) {
		job := Run{Dir: run.Dir, Record: rundir.Record{Submissions: []rundir.Submission{sub}}}
		// If Slurm does not return a state, try to cancel the job anyway.
		if states, err := s.Slurm.State(ctx, sub.JobID); err == nil && (states[0].Done() || states[0].State == slurm.StateUnknown) {
			continue
		}
		if err := s.checkJob(ctx, job); err != nil {
			return canceled, err
		}
		if err := s.Slurm.Cancel(ctx, sub.JobID); err != nil {
			return canceled, err
		}
		canceled = append(canceled, sub.JobID)
	}
	return canceled, nil
}

// A CanceledArray is a job array that [Store.CancelTrials] canceled.
type CanceledArray struct {
	ID     string
	Trials int // number of trials that had not ended
}

// CancelTrials cancels the last jobs of the trials that have not ended, and the jobs of their chains,
// with one call of scancel per job array, last first. All trials must have a job. The caller holds
// the sweep with [Run.OpenOwn]. The result has the arrays that were canceled before an error, in
// the order of the trials.
func (s *Store) CancelTrials(ctx context.Context, trials []Run) (canceled []CanceledArray, err error) {
	all := slices.Clone(trials)
	for _, trial := range trials {
		for _, sub := range trial.Record.Chain {
			all = append(all, Run{Dir: trial.Dir, Record: rundir.Record{Submissions: []rundir.Submission{sub}}})
		}
	}
	states, err := s.client(trials...).State(ctx, JobIDs(all)...)
	if err != nil {
		return nil, err
	}
	var arrays []string
	open := map[string]int{} // number of open trials by array
	for i, state := range states {
		if state.State == slurm.StateUnknown || state.Done() {
			continue
		}
		array, _, _ := strings.Cut(state.ID, "_")
		if open[array]++; open[array] == 1 {
			if err := s.checkJob(ctx, all[i]); err != nil {
				return nil, err
			}
			arrays = append(arrays, array)
		}
	}
	for _, id := range slices.Backward(arrays) {
		// Trials that were submitted again have already ended in this array.
		if err = s.Slurm.Cancel(ctx, id); err != nil {
			break
		}
		canceled = append(canceled, CanceledArray{id, open[id]})
	}
	slices.Reverse(canceled)
	for i := range trials {
		array, _, _ := strings.Cut(states[i].ID, "_")
		if slices.Contains(canceled, CanceledArray{array, open[array]}) {
			s.recordCancellation(trials[i], states[i])
		}
	}
	return canceled, err
}

// checkJob returns an error if neither the comment nor the script of the run's last job names
// the submission. Slurm may have reused the job ID for another job. It returns nil if Slurm does
// not respond. The jobs of user-written batch scripts that call the launcher have no such comment,
// but they have left files in the run directory.
func (s *Store) checkJob(ctx context.Context, run Run) error {
	last := run.Record.Last()
	if last == nil {
		return nil
	}
	id, _, _ := strings.Cut(last.JobID, "_")
	if last.ID == "" {
		if slices.Contains(run.Dir.JobIDs(), last.JobID) {
			return nil
		}
	} else if ids, err := s.Slurm.FindByComment(ctx, last.Comment()); err != nil || slices.Contains(ids, id) {
		return nil
	}
	// Some centers replace comments. The job's script in this directory also identifies it.
	jobs, err := s.Slurm.FindByScript(ctx, run.Dir.Script())
	if err != nil || slices.ContainsFunc(jobs, func(j slurm.SubmittedJob) bool { return j.ID == id }) {
		return nil
	}
	hint := "cancel the job with `scancel " + id + "` if it is the right one"
	if last.ID == "" {
		return hints.Errorf(hint, "cancel job %s: it has left no file in run directory %q", id, run.Dir.Path)
	}
	return hints.Errorf(hint, "cancel job %s: Slurm has no job of yours with this ID and the comment %q: it was not submitted from run directory %q",
		id, last.Comment(), run.Dir.Path)
}

// recordCancellation records the end of a job that was canceled before it started. Slurm 22.05
// immediately forgets a pending array task that is canceled, and no other record of its end
// exists.
func (s *Store) recordCancellation(run Run, before slurm.JobState) {
	if before.State != slurm.StatePending {
		return
	}
	if err := run.Dir.WriteEnd(rundir.End{JobID: before.ID, Exit: exitcode.Canceled, Time: time.Now().UTC()}); err != nil {
		s.note("warning: %v", err)
	}
}
