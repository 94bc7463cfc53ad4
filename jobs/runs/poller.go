package runs

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/watch"
	"github.com/ddpbatch/ddpbatch/slurm"
)

const (
	// slurmPollInterval is the minimum interval between queries to Slurm, to limit the load on
	// slurmctld.
	slurmPollInterval = 15 * time.Second
	// hiddenPollInterval is the minimum interval between checks of a run that is not visible.
	hiddenPollInterval = 15 * time.Second
	// maxStatusAge is the maximum age of a cached status. It bounds how long a change stays
	// unnoticed that does not change the attributes of [runFiles], such as a checkpoint that
	// the user deletes.
	maxStatusAge = 5 * time.Minute
)

// A Poller returns the status of runs again and again. It limits the load on the file system and
// on Slurm:
//
//   - It queries Slurm every 15 s, and when this user has a new job, for all runs together.
//   - It reads the files of a run that is queued or has ended only after a change of its run
//     directory.
//   - It checks runs that are not visible at most every 15 s; see [Poller.SetVisible].
//   - It forgets runs and jobs that are no longer in the list.
//
// A Poller must not be used by several goroutines at the same time.
type Poller struct {
	// Unlimited reports that the user named the runs. Runs of other users then have the limits of
	// [Run.CheckSweepSize] instead of the limits of a list.
	Unlimited bool

	slurm   slurm.Client
	entries map[string]*entry         // by run directory
	visible map[string]bool           // run directories; nil if all runs are visible
	states  map[string]slurm.JobState // by job ID
	polls   int                       // number of polls
	queried time.Time                 // time of the last query to Slurm
	err     error                     // error of that query
	now     func() time.Time
}

// An entry is the cached status of a run.
type entry struct {
	status  watch.Status // from the run directory, without Slurm's report
	metrics *watch.MetricsTail
	phase   watch.Phase // as of the last poll
	files   runFiles
	read    time.Time // when the files were read
	checked time.Time // when the files were read or found unchanged
	polled  int       // number of the last poll that included the run
}

// NewPoller returns a Poller that has not read anything.
func (s *Store) NewPoller() *Poller {
	return &Poller{slurm: s.Slurm, entries: map[string]*entry{}, states: map[string]slurm.JobState{}, now: time.Now}
}

// SetVisible declares that the user sees only these runs until the next call.
func (p *Poller) SetVisible(shown []*watch.Status) {
	p.visible = make(map[string]bool, len(shown))
	for _, s := range shown {
		p.visible[s.Dir] = true
	}
}

// Poll returns the status of the runs, from their directories and from Slurm. It returns the
// statuses that it could determine together with an error if Slurm did not respond or if some
// directories were unreadable. The result is nil if all of them were unreadable.
func (p *Poller) Poll(ctx context.Context, list []Run) ([]watch.Status, error) {
	p.polls++
	all := make([]watch.Status, 0, len(list))
	skipped := skippedRuns{all: p.Unlimited}
	var budget *readBudget
	if !p.Unlimited {
		budget = newReadBudget(maxForeignCost)
	}
	for _, r := range list {
		user, foreign := foreignOwner(r.Dir.Path)
		var s watch.Status
		var err error
		cost := func() (n int64) { n, err = r.readCost(); return n }
		if foreign && !budget.take(user, cost) {
			continue
		}
		if err == nil {
			s, err = p.read(r)
		}
		if err != nil {
			skipped.add(user, foreign, err)
			continue
		}
		all = append(all, s)
	}
	unreadable := append(skipped.errors(), budget.errors()...)
	// Another user can replace runs by others with new names, again and again.
	maps.DeleteFunc(p.entries, func(_ string, e *entry) bool { return e.polled != p.polls })
	if len(all) == 0 && len(unreadable) > 0 {
		return nil, errors.Join(unreadable...)
	}
	jobs := withJobs(all)
	if now := p.now(); now.Sub(p.queried) >= slurmPollInterval || !p.hasStates(jobs) {
		p.queried, p.err = now, p.query(ctx, jobs)
	}
	for _, s := range jobs {
		if state, ok := p.states[s.Job]; ok {
			s.AddJob(state)
		}
		s.Chain = slices.Clone(s.Chain) // of the cached status
		for i := range s.Chain {
			s.Chain[i].State = p.states[s.Chain[i].Job].State
		}
	}
	p.setPhases(all)
	return all, errors.Join(append(unreadable, p.err)...)
}

// read returns the status in the run directory. For a sweep, it includes the trials.
func (p *Poller) read(r Run) (watch.Status, error) {
	s, err := p.update(r.Dir, func() (Run, error) { return r, nil })
	if err != nil || !r.IsSweep() {
		return s, err
	}
	if p.Unlimited {
		if err := r.CheckSweepSize(); err != nil {
			return s, err
		}
	}
	s.State = "" // each trial has its own state
	for i, trial := range r.Record.Sweep.Elements {
		t, err := p.update(r.Dir.Element(i), func() (Run, error) { return r.trial(i) })
		if err != nil {
			return s, err
		}
		t.Values = trial.Values
		// The cost of a sweep of another user does not include the records of its trials.
		t.Chain = t.Chain[:min(len(t.Chain), len(r.Record.Chain))]
		s.Elements = append(s.Elements, t)
	}
	return s, nil
}

// update returns the status in the run directory dir. It reads the files unless the cached status
// is current. Open returns the run.
func (p *Poller) update(dir rundir.Dir, open func() (Run, error)) (watch.Status, error) {
	e, now := p.entries[dir.Path], p.now()
	if e != nil {
		e.polled = p.polls
		if p.isCurrent(e, now) {
			return e.status, nil
		}
	}
	files := statFiles(dir) // before reading, so that the next check finds a change in between
	r, err := open()
	if err != nil {
		return watch.Status{}, err
	}
	if e == nil {
		e = &entry{metrics: watch.NewMetricsTail(dir.Metrics()), polled: p.polls}
		p.entries[dir.Path] = e
	}
	e.status, e.files, e.read, e.checked = ReadStatus(r, e.metrics), files, now, now
	return e.status, nil
}

// ReadStatus returns the status in the run directory, without the trials of a sweep. If the run was
// launched without Slurm after its last job, the status has no job. Metrics holds the metrics that were
// read earlier.
func ReadStatus(r Run, metrics *watch.MetricsTail) watch.Status {
	job := r.Record.LastJob()
	if job != "" && r.IsLaunched() {
		job = ""
	}
	s := watch.Read(r.Dir, r.Record.Name, job, metrics)
	s.Pending = r.Record.Pending != nil
	if r.IsSweep() {
		return s // its trials have the chains
	}
	for _, sub := range r.Record.Chain {
		s.Chain = append(s.Chain, watch.ChainedJob{Job: sub.JobID})
	}
	return s
}

// isCurrent reports whether the cached status of a run can be used again.
func (p *Poller) isCurrent(e *entry, now time.Time) bool {
	if p.visible != nil && !p.visible[e.status.Dir] && now.Sub(e.checked) < hiddenPollInterval {
		return true
	}
	if !e.phase.IsIdle() || now.Sub(e.read) >= maxStatusAge || !e.files.identify(e.read) || !e.files.equal(statFiles(rundir.Dir{Path: e.status.Dir})) {
		return false
	}
	e.checked = now
	return true
}

// runFiles are the attributes of a run directory and its metrics file. While no rank runs, a
// change of the run changes them: all commands replace files in the directory, which updates its
// modification time. Ranks without a launcher append to the metrics.
type runFiles struct{ dir, metrics fs.FileInfo }

// statFiles returns the attributes of a run directory. They are nil for missing files.
func statFiles(dir rundir.Dir) (f runFiles) {
	f.dir, _ = os.Stat(dir.Path)
	f.metrics, _ = os.Lstat(dir.Metrics())
	return f
}

// identify reports whether the attributes, which were read at the given time, identify the
// contents. The files must not have changed shortly before: a second change could have left the
// same modification time.
func (f runFiles) identify(read time.Time) bool {
	if f.dir == nil || read.Sub(f.dir.ModTime()) < minRecordAge {
		return false
	}
	return f.metrics == nil || read.Sub(f.metrics.ModTime()) >= minRecordAge
}

func (f runFiles) equal(g runFiles) bool {
	equal := func(a, b fs.FileInfo) bool {
		if a == nil || b == nil {
			return a == nil && b == nil
		}
		return isUnchanged(a, b)
	}
	return equal(f.dir, g.dir) && equal(f.metrics, g.metrics)
}

// withJobs returns pointers to the statuses with a job ID. It replaces each sweep by its trials.
func withJobs(all []watch.Status) []*watch.Status {
	var jobs []*watch.Status
	for i := range all {
		if all[i].Elements != nil {
			jobs = append(jobs, withJobs(all[i].Elements)...)
		} else if all[i].Job != "" {
			jobs = append(jobs, &all[i])
		}
	}
	return jobs
}

// hasStates reports whether the cache has the state of all jobs of this user's runs, or the last query
// failed. Jobs in records of other users do not count: with a new number in each poll, they would make
// each poll query Slurm.
func (p *Poller) hasStates(jobs []*watch.Status) bool {
	for _, s := range jobs {
		if _, ok := p.states[s.Job]; !ok && p.err == nil && isOwnEntry(s.Dir) {
			return false
		}
	}
	return true
}

// query queries Slurm once for the states of all jobs, so that the number of runs does not
// multiply the load on the controller. If that fails, the cause can be jobs in records of other
// users, and it queries only the jobs of this user's runs.
func (p *Poller) query(ctx context.Context, jobs []*watch.Status) error {
	if len(jobs) == 0 {
		return nil
	}
	var ids, own []string
	byID := make(map[string]*watch.Status, len(jobs))
	for _, s := range jobs {
		chain := []string{s.Job}
		for _, next := range s.Chain {
			chain = append(chain, next.Job)
		}
		ids = append(ids, chain...)
		if isOwnEntry(s.Dir) {
			own = append(own, chain...)
		}
		// The record of another user's run can claim the job of this user's run.
		if other := byID[s.Job]; other == nil || !isOwnEntry(other.Dir) {
			byID[s.Job] = s
		}
	}
	client := p.slurm
	client.LastKnown = func(id string) (slurm.JobState, bool) {
		s := byID[id]
		if s == nil || s.LastEnd() == nil || s.LastEnd().JobID != id {
			return slurm.JobState{}, false
		}
		return finalState(id, *s.LastEnd()), true
	}
	states, err := client.State(ctx, ids...)
	if err != nil && len(own) < len(ids) && ctx.Err() == nil {
		ids = own
		states, _ = client.State(ctx, ids...)
	}
	if states == nil {
		return err
	}
	clear(p.states)
	for i, s := range states {
		p.states[ids[i]] = s
	}
	return err
}

// setPhases sets the phase of each run. For a sweep, it also counts its trials by phase.
func (p *Poller) setPhases(all []watch.Status) {
	now := p.now()
	for i := range all {
		s := &all[i]
		if s.Elements != nil {
			p.setPhases(s.Elements)
			s.SumUp()
			continue
		}
		s.SetPhase(now)
		p.entries[s.Dir].phase = s.Phase
	}
}
