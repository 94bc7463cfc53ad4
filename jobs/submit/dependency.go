package submit

import (
	"context"
	"fmt"
	"strings"

	"github.com/ddpbatch/ddpbatch/slurm"
)

// dependencies puts the runs that the job waits for into Slurm's terms. Slurm
// knows a job for some minutes after its end only, so what has come true already
// is left out.
func (a *submission) dependencies(ctx context.Context) ([]slurm.Dependency, error) {
	var out []slurm.Dependency
	for i, d := range a.req.Job.Slurm.Dependency {
		kind, run := d.Parts()
		met, id, err := a.dependency(ctx, slurm.DependencyType(kind), run)
		if err != nil {
			at := a.req.Job.At("slurm.dependency")
			place := fmt.Sprintf("slurm.dependency[%d] %q", i, d)
			if at.Line > 0 {
				place = fmt.Sprintf("%s:%d: %s", at.File, at.Line, place)
			}
			return nil, fmt.Errorf("%s: %w", place, err)
		}
		if met {
			a.Say(fmt.Sprintf("%s: is so already", d))
			continue
		}
		out = append(out, slurm.Dependency{Type: slurm.DependencyType(kind), IDs: []string{id}})
	}
	return out, nil
}

// dependency finds the job to wait for, or that there is nothing to wait for.
func (a *submission) dependency(ctx context.Context, kind slurm.DependencyType, run string) (met bool, id string, err error) {
	dir, err := a.req.Find(run)
	if err != nil {
		return false, "", err
	}
	if dir == nil {
		return false, run, nil // Slurm itself knows it, or refuses it
	}
	if dir.Path == a.dir.Path {
		return false, "", fmt.Errorf("a run cannot wait for itself")
	}
	record, err := dir.ReadRecord()
	if err != nil {
		return false, "", err
	}
	if id = record.LastJob(); id == "" {
		return false, "", refuse("submit that one first", "run %q was never submitted", dir.Path)
	}
	states, err := a.Slurm.State(ctx, id)
	if err != nil {
		return false, "", err
	}
	s := states[0]
	if s.State != slurm.StateUnknown && !s.Done() {
		return false, id, nil
	}
	ok := s.Succeeded()
	if s.State == slurm.StateUnknown {
		if record.Sweep != nil {
			return false, "", refuse("wait for it with `ddpbatch wait`, and submit without this dependency",
				"Slurm has forgotten job %s of the sweep %q", id, dir.Path)
		}
		ok = Finished(*dir, s)
	}
	switch {
	case kind == slurm.After, kind == slurm.AfterAny, kind == slurm.AfterOK && ok, kind == slurm.AfterNotOK && !ok && s.Done():
		return true, "", nil
	case kind == slurm.AfterOK && s.Done():
		return false, "", refuse("submit it again, and this one after it", "job %s of run %q is %s", id, dir.Path, s)
	case kind == slurm.AfterNotOK && ok:
		return false, "", fmt.Errorf("job %s of run %q has succeeded", id, dir.Path)
	}
	return false, "", refuse("see its log, and submit it again or leave the dependency out",
		"Slurm does not know job %s of run %q any more, and the run is not finished", id, strings.TrimSpace(dir.Path))
}
