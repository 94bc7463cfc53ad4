package submit

import (
	"context"
	"fmt"
	"slices"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// dependencies converts the job's dependencies to Slurm's form. It omits conditions that are
// already satisfied, because Slurm forgets a job a few minutes after its end.
func (a *submission) dependencies(ctx context.Context) ([]slurm.Dependency, error) {
	var out []slurm.Dependency
	for i, d := range a.req.Job.Slurm.Dependency {
		if d == jobs.Singleton {
			out = append(out, slurm.Dependency{Type: slurm.Singleton})
			continue
		}
		kind, run := d.Parts()
		wait, err := a.dependency(ctx, slurm.DependencyType(kind), run)
		if err != nil {
			pos := a.req.Job.At("slurm.dependency")
			label := fmt.Sprintf("slurm.dependency[%d] %q", i, d)
			if pos.Line > 0 {
				label = fmt.Sprintf("%s:%d: %s", pos.File, pos.Line, label)
			}
			return nil, fmt.Errorf("%s: %w", label, err)
		}
		if len(wait.IDs) == 0 {
			a.Say(fmt.Sprintf("dependency already satisfied: %s", d))
			continue
		}
		out = append(out, wait)
	}
	return out, nil
}

// dependency returns the jobs to wait for. The result has no IDs if the condition is already
// satisfied.
func (a *submission) dependency(ctx context.Context, kind slurm.DependencyType, run string) (slurm.Dependency, error) {
	var noDependency slurm.Dependency
	dir, err := a.req.Find(run)
	if err != nil {
		return noDependency, err
	}
	if dir == nil {
		return a.externalDependency(ctx, kind, run)
	}
	if dir.Path == a.dir.Path {
		return noDependency, fmt.Errorf("a run cannot wait for itself")
	}
	// RecoverPending writes to the directory. The record of another user's run could lead the writes
	// into a run of this user.
	if owned, release, err := rundir.OpenOwn(dir.Path); err == nil {
		defer release()
		if err := a.RecoverPending(ctx, owned); err != nil {
			return noDependency, err
		}
		dir = &owned
	}
	record, err := dir.ReadRecord()
	if err != nil {
		return noDependency, err
	}
	if kind == slurm.After {
		record.Chain = nil // the run starts with its first job
	}
	if record.Sweep != nil {
		return a.sweepDependency(ctx, kind, *dir, len(record.Sweep.Elements), len(record.Chain))
	}
	id := record.LastJob()
	if id == "" {
		return noDependency, neverSubmittedError(*dir)
	}
	ids := []string{id}
	for _, s := range record.Chain {
		ids = append(ids, s.JobID)
	}
	states, err := a.Slurm.State(ctx, ids...)
	if err != nil {
		return noDependency, err
	}
	// The last active job of a chain ends with the result of the run.
	for i, s := range slices.Backward(states) {
		if isActive(s) {
			return slurm.Dependency{Type: kind, IDs: []string{ids[i]}}, nil
		}
	}
	return noDependency, checkSatisfied(ctx, kind, *dir, states[0])
}

// sweepDependency returns the jobs of a sweep to wait for. Trials that were submitted again
// have separate jobs. No trial has more jobs in its chain than the sweep. The conditions
// follow Slurm's rules for array jobs: afternotok requires one failed trial, and all other
// conditions apply to every trial.
func (a *submission) sweepDependency(ctx context.Context, kind slurm.DependencyType, dir rundir.Dir, elements, chain int) (slurm.Dependency, error) {
	var noDependency slurm.Dependency
	dirs := make([]rundir.Dir, elements)
	for i := range dirs {
		dirs[i] = dir.Element(i)
	}
	states, err := a.statesIn(ctx, dirs, chain)
	if err != nil {
		return noDependency, err
	}
	arrays := map[string]bool{}
	for i := range dirs {
		if _, submitted := states[i]; !submitted {
			return noDependency, neverSubmittedError(dirs[i])
		}
		arrays[arrayJobID(states[i].open.ID)] = true
	}
	wait := slurm.Dependency{Type: kind}
	var unmet error
	ended := 0
	for i := range dirs {
		s := states[i].open // the last active job of a chain ends with the result of the trial
		if isActive(s) {
			wait.IDs = append(wait.IDs, s.ID)
			continue
		}
		ended++
		if err := checkSatisfied(ctx, kind, dir.Element(i), s); err == nil && kind == slurm.AfterNotOK {
			wait.Type = slurm.AfterAny // the remaining trials only have to end
		} else if err != nil {
			unmet = err
		}
	}
	switch failed := wait.Type != kind; {
	case kind != slurm.AfterNotOK && unmet != nil, len(wait.IDs) == 0 && unmet != nil && !failed:
		return noDependency, unmet
	case len(arrays) == 1 && (ended == 0 || kind == slurm.AfterNotOK && !failed && len(wait.IDs) > 0):
		wait.IDs = []string{arrayJobID(states[0].open.ID)} // use the shorter ID of the whole array
	case kind == slurm.AfterNotOK && !failed && len(wait.IDs) > 1:
		return noDependency, hints.Errorf("wait for the sweep with `ddpbatch wait`, or use afterany",
			"trials of the sweep %q were submitted again, and Slurm cannot wait for one of several jobs to fail", dir.Path)
	}
	return wait, nil
}

// externalDependency returns a dependency on a job that ddpbatch did not submit. It rejects jobs
// that Slurm does not have: some versions start a job immediately if its afterok names an unknown
// job.
func (a *submission) externalDependency(ctx context.Context, kind slurm.DependencyType, id string) (slurm.Dependency, error) {
	states, err := a.Slurm.State(ctx, id)
	if err != nil {
		return slurm.Dependency{}, err
	}
	if states[0].State == slurm.StateUnknown {
		return slurm.Dependency{}, hints.Errorf("check the job ID; if the job ended long ago, remove the dependency", "Slurm has no job %s", id)
	}
	return slurm.Dependency{Type: kind, IDs: []string{id}}, nil
}

func neverSubmittedError(dir rundir.Dir) error {
	return hints.Errorf("submit that run first", "run %q was never submitted", dir.Path)
}

func isActive(s slurm.JobState) bool { return s.State != slurm.StateUnknown && !s.Done() }

// checkSatisfied returns nil if the last job of the run satisfies the condition. The job must have
// ended. Otherwise, the error reports that the condition can no longer be satisfied or that
// the result of the job is unknown.
func checkSatisfied(ctx context.Context, kind slurm.DependencyType, dir rundir.Dir, last slurm.JobState) error {
	if kind == slurm.After || kind == slurm.AfterAny {
		return nil
	}
	ok, failed := last.Succeeded(), last.Done() && !last.Succeeded()
	if last.State == slurm.StateUnknown {
		var err error
		if ok, err = isFinished(ctx, dir, last); err != nil {
			return err
		}
		// Without ended.json, the run may still have failed: a killed launcher does not write
		// it.
		end, recorded := dir.ReadEnd()
		failed = !ok && recorded && end.JobID == last.ID && end.Exit != 0
	}
	switch {
	case kind == slurm.AfterOK && ok, kind == slurm.AfterNotOK && failed:
		return nil
	case ok:
		return fmt.Errorf("job %s of run %q has succeeded", last.ID, dir.Path)
	case failed && last.State == slurm.StateUnknown:
		return hints.Errorf("submit that run again, then this one", "job %s of run %q has failed", last.ID, dir.Path)
	case failed:
		return hints.Errorf("submit that run again, then this one", "job %s of run %q is %s", last.ID, dir.Path, last)
	}
	return hints.Errorf("check its log, and submit it again or remove the dependency",
		"Slurm no longer has job %s of run %q, and the run is not finished", last.ID, dir.Path)
}
