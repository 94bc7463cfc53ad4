package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/submit"
	"github.com/ddpbatch/ddpbatch/jobs/watch"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// statuses are how runs stand: what their directories tell, and what Slurm does. The
// error is that Slurm did not answer, and the rest stands, or, without any status,
// that a directory could not be read.
func (p *program) statuses(ctx context.Context, runs []knownRun) ([]watch.Status, error) {
	all := make([]watch.Status, len(runs))
	for i, r := range runs {
		var err error
		if all[i], err = storedWithElements(r); err != nil {
			return nil, err
		}
	}
	err := p.askSlurm(ctx, runs, all)
	settle(runs, all)
	return all, err
}

// askSlurm fills in the states of the jobs, by one call for all: a hundred runs
// must not become a hundred calls to the controller.
func (p *program) askSlurm(ctx context.Context, runs []knownRun, all []watch.Status) error {
	var ids []string
	var at []*watch.Status
	for i := range all {
		asked := []*watch.Status{&all[i]}
		if all[i].Elements != nil {
			asked = nil
			for e := range all[i].Elements {
				asked = append(asked, &all[i].Elements[e])
			}
		}
		for _, s := range asked {
			if s.Job != "" {
				ids, at = append(ids, s.Job), append(at, s)
			}
		}
	}
	if len(ids) == 0 {
		return nil
	}
	for _, r := range runs {
		elements, err := r.elements()
		if err != nil {
			return err
		}
		runs = append(runs, elements...)
	}
	states, err := p.slurmFor(runs...).State(ctx, ids...)
	if err != nil {
		return err
	}
	for k, s := range states {
		at[k].Take(s)
	}
	return nil
}

// settle finds the phases; of a sweep, how many elements are in which.
func settle(runs []knownRun, all []watch.Status) {
	now := time.Now()
	for i := range all {
		s := &all[i]
		if s.Elements == nil {
			s.Settle(failureOf(runs[i]), now)
			continue
		}
		counts := map[watch.Phase]int{}
		var order []watch.Phase
		for e := range s.Elements {
			element := &s.Elements[e]
			element.Settle(failureOf(knownRun{dir: runs[i].dir.Element(e)}), now)
			if counts[element.Phase]++; counts[element.Phase] == 1 {
				order = append(order, element.Phase)
			}
		}
		slices.Sort(order)
		var parts []string
		for _, phase := range order {
			parts = append(parts, fmt.Sprintf("%d %s", counts[phase], phase))
		}
		s.Finished = counts[watch.Done] == len(s.Elements)
		s.Reason = strings.Join(parts, ", ")
	}
}

func failureOf(r knownRun) string {
	if f := firstFailure(r.dir); f != nil {
		return f.Reason
	}
	return ""
}

// storedWithElements is what the run directory tells, and for a sweep those of its
// elements.
func storedWithElements(r knownRun) (watch.Status, error) {
	s := stored(r, nil)
	elements, err := r.elements()
	if err != nil || elements == nil {
		return s, err
	}
	s.State = "" // each element has one
	for i, e := range elements {
		inner := stored(e, nil)
		inner.Values = r.record.Sweep.Elements[i].Values
		s.Elements = append(s.Elements, inner)
	}
	return s, nil
}

// stored is what the run directory itself tells.
func stored(r knownRun, figures *watch.Figures) watch.Status {
	s := watch.Read(r.dir, r.record.Name, r.record.LastJob(), figures)
	s.Finished = submit.SaysFinished(r.dir, slurm.JobState{ID: s.Job})
	s.Pending = r.record.Pending != nil
	return s
}
