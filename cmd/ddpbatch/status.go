package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/jobs/submit"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

type statusCmd struct {
	Which []string `arg:"" optional:"" name:"run" help:"Run directories, job files or job ids; default all below runs/."`
	JSON  bool     `help:"Print the answer as JSON."`
}

// runStatus is how a run stands.
type runStatus struct {
	Values     map[string]string `json:"values,omitempty"`   // of an element of a sweep
	Elements   []runStatus       `json:"elements,omitempty"` // of a sweep
	Name       string            `json:"name"`
	Dir        string            `json:"run_dir"`
	Job        string            `json:"job_id,omitempty"` // empty: never submitted
	State      slurm.State       `json:"state,omitempty"`
	Reason     string            `json:"reason,omitempty"`
	ExitCode   string            `json:"exit_code,omitempty"`
	Nodes      string            `json:"nodes,omitempty"`
	Restarts   int               `json:"restarts"` // by Slurm; -1 is not known
	Step       *int              `json:"step,omitempty"`
	Epoch      *int              `json:"epoch,omitempty"`
	Loss       *metrics.Number   `json:"loss,omitempty"`
	Accuracy   *metrics.Number   `json:"accuracy,omitempty"`
	Checkpoint *int              `json:"checkpoint_step,omitempty"`
	Finished   bool              `json:"finished"`
	Pending    bool              `json:"pending,omitempty"` // it is not known whether Slurm has its job
	Failure    string            `json:"failure,omitempty"`
}

func (c *statusCmd) Run(ctx context.Context, p *program) error {
	runs, err := c.runs(p)
	if err != nil {
		return err
	}
	all := make([]runStatus, len(runs))
	for i, r := range runs {
		if all[i], err = storedWithElements(r); err != nil {
			return err
		}
	}
	// What the run directories tell is shown even when Slurm does not answer.
	asked := p.askSlurm(ctx, runs, all)
	if c.JSON {
		if err := p.printJSON(all); err != nil {
			return err
		}
		return asked
	}
	if len(all) == 0 {
		p.note("there are no runs below %s", p.abs(runsFolder))
		return nil
	}
	if len(c.Which) == 1 && len(all[0].Elements) > 0 {
		all = all[0].Elements // it was asked for by name
	}
	p.showRuns(all)
	return asked
}

// showRuns prints one table for all runs, with the values of the elements of a
// sweep.
func (p *program) showRuns(all []runStatus) {
	header := []string{"RUN", "JOB", "STATE", "STEP", "EPOCH", "LOSS", "ACCURACY", "SAVED", "NOTE"}
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(all[0].Values)) {
		keys = append(keys, key)
		// The last part says enough, and a table is narrow.
		header = slices.Insert(header, len(header)-1, strings.ToUpper(key[strings.LastIndexByte(key, '.')+1:]))
	}
	rows := make([][]string, len(all))
	for i, s := range all {
		rows[i] = s.row()
		for _, key := range keys {
			rows[i] = slices.Insert(rows[i], len(rows[i])-1, s.Values[key])
		}
	}
	p.table(header, rows)
}

func (c *statusCmd) runs(p *program) ([]knownRun, error) {
	if len(c.Which) == 0 {
		return p.runs()
	}
	var runs []knownRun
	for _, arg := range c.Which {
		r, err := p.findRun(arg)
		if err != nil {
			return nil, err
		}
		runs = append(runs, r)
	}
	return runs, nil
}

// askSlurm fills in the states of the jobs, by one call for all: a hundred runs
// must not become a hundred calls to the controller.
func (p *program) askSlurm(ctx context.Context, runs []knownRun, all []runStatus) error {
	var ids []string
	var at []*runStatus
	for i := range all {
		asked := []*runStatus{&all[i]}
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
		r := at[k]
		r.State, r.Reason, r.ExitCode, r.Nodes, r.Restarts = s.State, s.Reason, s.ExitCode, s.Nodes, s.Restarts
	}
	for i := range all {
		all[i].sumUp()
	}
	return nil
}

// sumUp says of a sweep how many elements are in which state.
func (s *runStatus) sumUp() {
	var states []slurm.JobState
	done := 0
	for _, e := range s.Elements {
		switch {
		case e.Finished:
			done++
		case e.Job != "":
			states = append(states, slurm.JobState{State: e.State})
		}
	}
	if s.Elements == nil {
		return
	}
	s.Finished = done == len(s.Elements)
	parts := []string{}
	if done > 0 {
		parts = append(parts, fmt.Sprintf("%d finished", done))
	}
	if rest := tally(states); rest != "" {
		parts = append(parts, rest)
	}
	s.Reason = strings.Join(parts, ", ")
}

// storedWithElements is what the run directory tells, and for a sweep those of its
// elements.
func storedWithElements(r knownRun) (runStatus, error) {
	s := stored(r)
	elements, err := r.elements()
	if err != nil || elements == nil {
		return s, err
	}
	s.State = "" // each element has one
	for i, e := range elements {
		inner := stored(e)
		inner.Values = r.record.Sweep.Elements[i].Values
		s.Elements = append(s.Elements, inner)
	}
	return s, nil
}

// stored is what the run directory itself tells.
func stored(r knownRun) runStatus {
	s := runStatus{Name: r.record.Name, Dir: r.dir.Path, Job: r.record.LastJob(), Restarts: -1}
	if s.Job != "" {
		s.State = slurm.StateUnknown
	}
	if f := firstFailure(r.dir); f != nil {
		s.Failure = f.Reason
	}
	s.figures(r.dir.Metrics())
	if entries, err := checkpoint.List(r.dir.Checkpoints()); err == nil && len(entries) > 0 {
		newest := entries[0]
		s.Checkpoint = &newest.Step
	}
	s.Finished = submit.SaysFinished(r.dir, slurm.JobState{ID: s.Job})
	s.Pending = r.record.Pending != nil
	return s
}

func (s runStatus) row() []string {
	note := ""
	switch {
	case s.Elements != nil:
		note = s.Reason
	case s.Finished:
		note = "finished"
	case s.Pending:
		note = "its submission was cut short: submit it again to find its job"
	case s.Reason == "DependencyNeverSatisfied":
		note = "what it waits for has failed: cancel it, and submit it again"
	case s.Failure != "":
		note = s.Failure
	case s.Reason != "" && !s.State.Done(): // later it only tells why the job had waited
		note = s.Reason
	case s.ExitCode == fmt.Sprintf("%d:0", exitStopped):
		note = "stopped; submit it again to go on"
	case s.State.Done() && s.ExitCode != "" && s.ExitCode != "0:0":
		note = "exit code " + s.ExitCode
	}
	return []string{s.Name, s.Job, strings.ToLower(string(s.State)), number(s.Step), number(s.Epoch), figure(s.Loss), figure(s.Accuracy),
		number(s.Checkpoint), note}
}

func number(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}

func figure(n *metrics.Number) string {
	if n == nil {
		return ""
	}
	return fmt.Sprintf("%.4g", float64(*n))
}
