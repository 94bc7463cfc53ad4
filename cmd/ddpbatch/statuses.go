package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/watch"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// A lookout polls run directories and Slurm for the status of runs. It caches the parsed
// metrics and Slurm's job states between polls.
type lookout struct {
	p       *program
	figures map[string]*watch.Figures // by run directory
	states  map[string]slurm.JobState // by job ID
	asked   time.Time
	err     error // error of the last query to Slurm
	named   bool  // whether the user named the runs
}

// askEvery is the minimum interval between queries to Slurm, to limit the load on slurmctld.
const askEvery = 15 * time.Second

func (p *program) lookout() *lookout {
	return &lookout{p: p, figures: map[string]*watch.Figures{}, states: map[string]slurm.JobState{}}
}

// look returns the status of the given runs, from their directories and from Slurm. It returns
// the statuses that it could determine together with an error if Slurm did not respond or if
// some directories were unreadable. The result is nil if all of them were unreadable.
func (l *lookout) look(ctx context.Context, asked []knownRun) ([]watch.Status, error) {
	all, runs := make([]watch.Status, 0, len(asked)), make([]knownRun, 0, len(asked))
	var unread []error
	var budget *readBudget
	if !l.named {
		budget = newReadBudget(maxForeignCost)
	}
	for _, r := range asked {
		if user, foreign := foreignOwner(r.dir.Path); foreign && !budget.take(user, r.readCost()) {
			continue
		}
		s, err := l.stored(r)
		if err != nil {
			unread = append(unread, fmt.Errorf("left out: %w", err))
			continue
		}
		all, runs = append(all, s), append(runs, r)
	}
	for _, note := range budget.notes() {
		unread = append(unread, errors.New(note))
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
			s.AddJob(state)
		}
	}
	setPhases(all)
	return all, errors.Join(append(unread, l.err)...)
}

// jobsOf returns pointers to the statuses with a job ID. It replaces each sweep by its trials.
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

// knows reports whether the cache has the state of all jobs, or the last query failed.
func (l *lookout) knows(jobs []*watch.Status) bool {
	for _, s := range jobs {
		if _, ok := l.states[s.Job]; !ok && l.err == nil {
			return false
		}
	}
	return true
}

// ask queries Slurm once for the states of all jobs, so that the number of runs does not
// multiply the load on the controller.
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

// stored returns the status in the run directory. For a sweep, it includes the trials.
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
	s.State = "" // each trial has its own state
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

// setPhases sets the phase of each run. For a sweep, it also counts its trials by phase.
func setPhases(all []watch.Status) {
	now := time.Now()
	for i := range all {
		s := &all[i]
		if s.Elements == nil {
			s.SetPhase(now)
			continue
		}
		for e := range s.Elements {
			s.Elements[e].SetPhase(now)
		}
		s.SumUp()
	}
}

// stored returns the status in the run directory, without its trials.
func stored(r knownRun, figures *watch.Figures) watch.Status {
	s := watch.Read(r.dir, r.record.Name, r.record.LastJob(), figures)
	s.Pending = r.record.Pending != nil
	return s
}
