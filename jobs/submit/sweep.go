package submit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// chooseElements selects the trials of the sweep to submit. found is an earlier submission of
// the same sweep whose job has just been found, or nil. Its trials count as submitted. done
// reports that no trials remain.
func (a *submission) chooseElements(ctx context.Context, found *rundir.Submission) (done bool, err error) {
	all := a.req.Job.Sweep.Trials
	states, err := a.elementStates(ctx, len(all))
	if err != nil {
		return false, err
	}
	requested := a.req.Elements
	if requested == nil {
		for i := range all {
			requested = append(requested, i)
		}
	}
	var busy []int
	a.elements = []int{}
	for _, i := range requested {
		if i < 0 || i >= len(all) {
			return false, fmt.Errorf("no trial %d: the sweep has trials 0 to %d", i, len(all)-1)
		}
		s, submitted := states[i]
		if found != nil && slices.Contains(found.Elements, i) {
			continue
		}
		finished, err := isFinished(ctx, a.dir.Element(i), s.last)
		switch {
		case err != nil:
			return false, err
		case finished:
		case submitted && isActive(s.open):
			busy = append(busy, i)
		case submitted || !a.req.Failed:
			a.elements = append(a.elements, i)
		}
	}
	if len(busy) > 0 && !a.req.Failed {
		i := busy[0]
		return false, hints.Errorf("wait for them, cancel them with `ddpbatch cancel`, or submit only failed trials with --failed",
			"%s of the sweep still queued or running, such as trial %d (job %s, %s)", format.Count(len(busy), "trial"), i, states[i].open.ID, states[i].open)
	}
	return len(a.elements) == 0, nil
}

// CheckResumable returns an error if a job cannot continue in a run directory. A sweep cannot
// continue a single run, and a single run cannot continue a sweep. The existing trials of a sweep
// must not change, because their runs would resume with other values. sweep is nil for a single
// job.
func CheckResumable(dir rundir.Dir, sweep *jobs.Sweep) error {
	record, err := dir.ReadRecord()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	switch sweeps := sweep != nil; {
	case !sweeps && record.Sweep != nil:
		return hints.Errorf("use a different --run-dir for this job", "run directory %q holds a sweep", dir.Path)
	case sweeps && record.Sweep == nil && len(record.Submissions) > 0:
		return hints.Errorf("use a different --run-dir for the sweep", "run directory %q holds a single run, not a sweep", dir.Path)
	case record.Sweep == nil:
		return nil
	}
	current := sweepRecord(sweep).Elements
	for i, e := range record.Sweep.Elements {
		if i >= len(current) || !maps.Equal(e.Values, current[i].Values) {
			return hints.Errorf("use a different --run-dir for the changed sweep, or append new trials after the existing ones",
				"trial %d of the sweep in %q has changed", i, dir.Path)
		}
	}
	return nil
}

// sweepRecord returns the trials of a sweep as the run directory stores them.
func sweepRecord(sweep *jobs.Sweep) *rundir.SweepRecord {
	var all []rundir.ElementRecord
	for _, e := range sweep.Trials {
		r := rundir.ElementRecord{Values: map[string]string{}}
		for _, v := range e.Values {
			r.Values[v.Key] = v.Text()
		}
		all = append(all, r)
	}
	return &rundir.SweepRecord{Elements: all}
}

// elementState is the state of the jobs of a trial.
type elementState struct {
	last slurm.JobState // the last job
	open slurm.JobState // the last job of the chain that has not ended, or the last job
}

// elementStates returns the states of the jobs of n trials, from a single query. Trials that were
// never submitted are not in the map.
func (a *submission) elementStates(ctx context.Context, n int) (map[int]elementState, error) {
	var dirs []rundir.Dir
	for i := range n {
		dirs = append(dirs, a.dir.Element(i))
	}
	return a.statesIn(ctx, dirs, math.MaxInt)
}

// statesIn returns the states of the jobs of runs, by the index of their directories. It reads at most
// maxChain jobs of the chain of each run, which may belong to another user.
func (a *submission) statesIn(ctx context.Context, dirs []rundir.Dir, maxChain int) (map[int]elementState, error) {
	states := map[int]elementState{}
	var ids []string
	var owners []int
	for i, dir := range dirs {
		record, err := dir.ReadRecord()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if id := record.LastJob(); id != "" {
			ids, owners = append(ids, id), append(owners, i)
			for _, s := range record.Chain[:min(len(record.Chain), maxChain)] {
				ids, owners = append(ids, s.JobID), append(owners, i)
			}
		}
	}
	if len(ids) == 0 {
		return states, nil
	}
	answers, err := a.Slurm.State(ctx, ids...)
	if err != nil {
		return nil, fmt.Errorf("query states of the sweep's trials: %w", err)
	}
	for k, s := range answers {
		s.ID = ids[k]
		e, known := states[owners[k]]
		if !known {
			e.last, e.open = s, s
		} else if isActive(s) {
			e.open = s
		}
		states[owners[k]] = e
	}
	return states, nil
}

// prepareElements creates the run directories of the trials.
func (a *submission) prepareElements() error {
	sweep := a.req.Job.Sweep
	if sweep == nil {
		return nil
	}
	a.record.Sweep = sweepRecord(sweep)
	for _, e := range sweep.Trials {
		dir := a.dir.Element(e.Index)
		if _, err := rundir.Create(dir.Path); err != nil {
			return err
		}
		if !slices.Contains(a.elements, e.Index) {
			continue // its files stay as they were submitted
		}
		spec, err := e.Job.Source()
		if err != nil {
			return err
		}
		if _, err := dir.Prepare(string(e.Job.Name), a.req.Base, a.req.Version, spec); err != nil {
			return err
		}
		if err := dir.WriteSite(a.req.Site.Source()); err != nil {
			return err
		}
	}
	return nil
}
