package runs

import (
	"context"
	"fmt"

	"github.com/ddpbatch/ddpbatch/internal/exitcode"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// An Ended is a run whose last job or launch has ended. Either Job or Launch is set.
type Ended struct {
	Run    Run
	Job    *slurm.JobState
	Launch *LaunchEnd
}

// Result returns the result of the run.
func (e Ended) Result() Result {
	if e.Launch != nil {
		return launchResult(e.Run, *e.Launch)
	}
	return jobResult(e.Run.Dir, *e.Job)
}

// String names the job or the run.
func (e Ended) String() string {
	if e.Launch != nil {
		return "run " + e.Run.Record.Name
	}
	return "job " + e.Job.ID
}

// Wait waits until the last jobs and launches of the runs have ended, with one query to Slurm
// for all jobs. It returns them in the order of all, without the runs that were never started.
// It calls onJobs, unless it is nil, with the states of all jobs after each query.
func (s *Store) Wait(ctx context.Context, all []Run, onJobs func([]slurm.JobState)) ([]Ended, error) {
	jobs, _ := SplitByStart(all)
	states := make(map[string]slurm.JobState, len(jobs)) // by run directory
	if len(jobs) > 0 {
		last, err := s.client(jobs...).WaitAll(ctx, JobIDs(jobs), onJobs)
		if err != nil {
			return nil, err
		}
		for i, r := range jobs {
			states[r.Dir.Path] = last[i]
		}
	}
	var ended []Ended
	for _, r := range all {
		if job, ok := states[r.Dir.Path]; ok {
			ended = append(ended, Ended{Run: r, Job: &job})
			continue
		}
		if !r.IsLaunched() {
			continue
		}
		end, err := r.waitForLaunch(ctx)
		if err != nil {
			return nil, err
		}
		ended = append(ended, Ended{Run: r, Launch: &end})
	}
	return ended, nil
}

// JobStates returns Slurm's states of the last jobs of the runs, by job ID. It omits runs that
// were never submitted.
func (s *Store) JobStates(ctx context.Context, all ...Run) (map[string]slurm.JobState, error) {
	byID := map[string]slurm.JobState{}
	ids := JobIDs(all)
	if len(ids) == 0 {
		return byID, nil
	}
	states, err := s.client(all...).State(ctx, ids...)
	for i, state := range states {
		byID[ids[i]] = state
	}
	return byID, err
}

// client returns a Slurm client for the last jobs of the runs. If neither squeue nor sacct lists
// a job, the client uses the result that the launcher stored in the run directory.
func (s *Store) client(all ...Run) slurm.Client {
	dirs := map[string]rundir.Dir{}
	for _, r := range all {
		last := r.Record.Last()
		if last == nil {
			continue
		}
		// The record of another user's run can claim the job of this user's run.
		if other, ok := dirs[last.JobID]; !ok || !isOwnEntry(other.Path) {
			dirs[last.JobID] = r.Dir
		}
	}
	client := s.Slurm
	client.LastKnown = func(id string) (slurm.JobState, bool) {
		dir, ok := dirs[id]
		if !ok {
			return slurm.JobState{}, false
		}
		end, ok := dir.ReadEnd()
		return finalState(id, end), ok && end.JobID == id
	}
	return client
}

// finalState returns the final state of a job from ended.json. The launcher or
// `ddpbatch cancel` writes that file.
func finalState(id string, end rundir.End) slurm.JobState {
	state := slurm.JobState{ID: id, State: slurm.StateFailed, ExitCode: fmt.Sprintf("%d:0", end.Exit), Restarts: -1}
	switch end.Exit {
	case exitcode.Done:
		state.State = slurm.StateCompleted
	case exitcode.Canceled:
		state.State = slurm.StateCancelled
	}
	return state
}
