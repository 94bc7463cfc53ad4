package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/watch"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// lookout asks how runs stand, again and again: it keeps what it has read of their
// figures, and what Slurm has said.
type lookout struct {
	p       *program
	figures map[string]*watch.Figures // by run directory
	states  map[string]slurm.JobState // by job
	asked   time.Time
	err     error // of the last question to Slurm
}

// askEvery is how often Slurm is asked: its controller has more to do.
const askEvery = 15 * time.Second

func (p *program) lookout() *lookout {
	return &lookout{p: p, figures: map[string]*watch.Figures{}, states: map[string]slurm.JobState{}}
}

// look is how runs stand: what their directories tell, and what Slurm does. The
// error is that Slurm did not answer, or that some directories could not be read, and the
// rest stands; without any status, that none could be read.
func (l *lookout) look(ctx context.Context, asked []knownRun) ([]watch.Status, error) {
	all, runs := make([]watch.Status, 0, len(asked)), make([]knownRun, 0, len(asked))
	var unread []error
	for _, r := range asked {
		s, err := l.stored(r)
		if err != nil {
			unread = append(unread, fmt.Errorf("left out: %w", err))
			continue
		}
		all, runs = append(all, s), append(runs, r)
	}
	if len(all) == 0 && len(unread) > 0 {
		return nil, errors.Join(unread...)
	}
	jobs := jobsOf(all)
	if now := time.Now(); now.Sub(l.asked) >= askEvery || !l.knows(jobs) {
		l.asked, l.err = now, l.ask(ctx, runs, jobs)
	}
	for _, s := range jobs {
		if state, ok := l.states[s.Job]; ok {
			s.Take(state)
		}
	}
	settle(runs, all)
	return all, errors.Join(append(unread, l.err)...)
}

// jobsOf are the runs that have a job, elements of sweeps among them.
func jobsOf(all []watch.Status) []*watch.Status {
	var jobs []*watch.Status
	for i := range all {
		if all[i].Elements != nil {
			jobs = append(jobs, jobsOf(all[i].Elements)...)
		} else if all[i].Job != "" {
			jobs = append(jobs, &all[i])
		}
	}
	return jobs
}

// knows says whether Slurm was asked about all of these.
func (l *lookout) knows(jobs []*watch.Status) bool {
	for _, s := range jobs {
		if _, ok := l.states[s.Job]; !ok && l.err == nil {
			return false
		}
	}
	return true
}

// ask asks for the states of all jobs at once: a hundred runs must not become a hundred
// calls to the controller.
func (l *lookout) ask(ctx context.Context, runs []knownRun, jobs []*watch.Status) error {
	if len(jobs) == 0 {
		return nil
	}
	ids := make([]string, len(jobs))
	for i, s := range jobs {
		ids[i] = s.Job
	}
	for _, r := range runs {
		elements, err := r.elements()
		if err != nil {
			return err
		}
		runs = append(runs, elements...)
	}
	states, err := l.p.slurmFor(runs...).State(ctx, ids...)
	if err != nil {
		return err
	}
	for i, s := range states {
		l.states[ids[i]] = s
	}
	return nil
}

// stored is what the run directory tells, and for a sweep those of its elements.
func (l *lookout) stored(r knownRun) (watch.Status, error) {
	figures := l.figures[r.dir.Path]
	if figures == nil {
		figures = watch.NewFigures(r.dir.Metrics())
		l.figures[r.dir.Path] = figures
	}
	s := stored(r, figures)
	elements, err := r.elements()
	if err != nil || elements == nil {
		return s, err
	}
	s.State = "" // each element has one
	for i, e := range elements {
		inner, err := l.stored(e)
		if err != nil {
			return s, err
		}
		inner.Values = r.record.Sweep.Elements[i].Values
		s.Elements = append(s.Elements, inner)
	}
	return s, nil
}

// settle finds the phases; of a sweep, how many elements are in which.
func settle(runs []knownRun, all []watch.Status) {
	now := time.Now()
	for i := range all {
		s := &all[i]
		if s.Elements == nil {
			s.Settle(failureOf(runs[i].dir, s.Job), now)
			continue
		}
		for e := range s.Elements {
			s.Elements[e].Settle(failureOf(runs[i].dir.Element(e), s.Elements[e].Job), now)
		}
		s.SumUp()
	}
}

func failureOf(dir rundir.Dir, job string) string {
	if f := firstFailure(dir, job); f != nil {
		return f.Reason
	}
	return ""
}

// stored is what the run directory itself tells.
func stored(r knownRun, figures *watch.Figures) watch.Status {
	s := watch.Read(r.dir, r.record.Name, r.record.LastJob(), figures)
	s.Pending = r.record.Pending != nil
	return s
}
