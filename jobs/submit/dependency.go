package submit

import (
	"context"
	"fmt"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// dependencies puts the runs that the job waits for into Slurm's terms. Slurm
// knows a job for some minutes after its end only, so what has come true already
// is left out.
func (a *submission) dependencies(ctx context.Context) ([]slurm.Dependency, error) {
	var out []slurm.Dependency
	for i, d := range a.req.Job.Slurm.Dependency {
		kind, run := d.Parts()
		wait, err := a.dependency(ctx, slurm.DependencyType(kind), run)
		if err != nil {
			at := a.req.Job.At("slurm.dependency")
			place := fmt.Sprintf("slurm.dependency[%d] %q", i, d)
			if at.Line > 0 {
				place = fmt.Sprintf("%s:%d: %s", at.File, at.Line, place)
			}
			return nil, fmt.Errorf("%s: %w", place, err)
		}
		if len(wait.IDs) == 0 {
			a.Say(fmt.Sprintf("%s: is so already", d))
			continue
		}
		out = append(out, wait)
	}
	return out, nil
}

// dependency finds the jobs to wait for; there are none where there is nothing to
// wait for any more.
func (a *submission) dependency(ctx context.Context, kind slurm.DependencyType, run string) (slurm.Dependency, error) {
	var none slurm.Dependency
	dir, err := a.req.Find(run)
	if err != nil {
		return none, err
	}
	if dir == nil {
		return a.foreign(ctx, kind, run)
	}
	if dir.Path == a.dir.Path {
		return none, fmt.Errorf("a run cannot wait for itself")
	}
	if err := a.Settle(ctx, *dir); err != nil {
		return none, err
	}
	record, err := dir.ReadRecord()
	if err != nil {
		return none, err
	}
	if record.Sweep != nil {
		return a.sweepDependency(ctx, kind, *dir, len(record.Sweep.Elements))
	}
	id := record.LastJob()
	if id == "" {
		return none, neverSubmitted(*dir)
	}
	states, err := a.Slurm.State(ctx, id)
	if err != nil {
		return none, err
	}
	s := states[0]
	if active(s) {
		return slurm.Dependency{Type: kind, IDs: []string{id}}, nil
	}
	return none, comeTrue(ctx, kind, *dir, s)
}

// sweepDependency finds the jobs of a sweep's elements to wait for: those that
// were submitted again have another job than the rest. As with an array of Slurm's,
// afternotok is that one of them has failed, and the others all of them.
func (a *submission) sweepDependency(ctx context.Context, kind slurm.DependencyType, dir rundir.Dir, elements int) (slurm.Dependency, error) {
	var none slurm.Dependency
	ids := make([]string, elements)
	arrays := map[string]bool{}
	for i := range ids {
		record, err := dir.Element(i).ReadRecord()
		if err != nil || record.LastJob() == "" {
			return none, neverSubmitted(dir.Element(i))
		}
		ids[i] = record.LastJob()
		arrays[arrayOf(ids[i])] = true
	}
	states, err := a.Slurm.State(ctx, ids...)
	if err != nil {
		return none, err
	}
	wait := slurm.Dependency{Type: kind}
	var untrue error
	ended := 0
	for i, s := range states {
		if active(s) {
			wait.IDs = append(wait.IDs, ids[i])
			continue
		}
		ended++
		if err := comeTrue(ctx, kind, dir.Element(i), s); err == nil && kind == slurm.AfterNotOK {
			wait.Type = slurm.AfterAny // the others only have to end
		} else if err != nil {
			untrue = err
		}
	}
	switch failed := wait.Type != kind; {
	case kind != slurm.AfterNotOK && untrue != nil, len(wait.IDs) == 0 && untrue != nil && !failed:
		return none, untrue
	case len(arrays) == 1 && (ended == 0 || kind == slurm.AfterNotOK && !failed && len(wait.IDs) > 0):
		wait.IDs = []string{arrayOf(ids[0])} // the array says it shorter
	case kind == slurm.AfterNotOK && !failed && len(wait.IDs) > 1:
		return none, hints.Errorf("wait for the sweep with `ddpbatch wait`, or use afterany",
			"elements of the sweep %q were submitted again, and Slurm cannot wait for one of several jobs to fail", dir.Path)
	}
	return wait, nil
}

// foreign is the dependency on a job that this program did not submit. Some
// versions of Slurm start a job at once whose afterok names a job that they do not
// know.
func (a *submission) foreign(ctx context.Context, kind slurm.DependencyType, id string) (slurm.Dependency, error) {
	states, err := a.Slurm.State(ctx, id)
	if err != nil {
		return slurm.Dependency{}, err
	}
	if states[0].State == slurm.StateUnknown {
		return slurm.Dependency{}, hints.Errorf("is the id right? If the job has ended long ago, submit without the dependency", "Slurm does not know job %s", id)
	}
	return slurm.Dependency{Type: kind, IDs: []string{id}}, nil
}

func neverSubmitted(dir rundir.Dir) error {
	return hints.Errorf("submit that one first", "run %q was never submitted", dir.Path)
}

func active(s slurm.JobState) bool { return s.State != slurm.StateUnknown && !s.Done() }

// comeTrue says of a run whose last job has ended whether the condition has come
// true: the error says why it never will, or that nobody knows.
func comeTrue(ctx context.Context, kind slurm.DependencyType, dir rundir.Dir, last slurm.JobState) error {
	if kind == slurm.After || kind == slurm.AfterAny {
		return nil
	}
	ok, failed := last.Succeeded(), last.Done() && !last.Succeeded()
	if last.State == slurm.StateUnknown {
		var err error
		if ok, err = Finished(ctx, dir, last); err != nil {
			return err
		}
		// Not the other way round: a launcher that was killed has no last word.
		end, told := dir.ReadEnd()
		failed = !ok && told && end.JobID == last.ID && end.Exit != 0
	}
	switch {
	case kind == slurm.AfterOK && ok, kind == slurm.AfterNotOK && failed:
		return nil
	case ok:
		return fmt.Errorf("job %s of run %q has succeeded", last.ID, dir.Path)
	case failed && last.State == slurm.StateUnknown:
		return hints.Errorf("submit it again, and this one after it", "job %s of run %q has failed", last.ID, dir.Path)
	case failed:
		return hints.Errorf("submit it again, and this one after it", "job %s of run %q is %s", last.ID, dir.Path, last)
	}
	return hints.Errorf("see its log, and submit it again or leave the dependency out",
		"Slurm does not know job %s of run %q any more, and the run is not finished", last.ID, dir.Path)
}
