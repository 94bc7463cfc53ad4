package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

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
	Name       string          `json:"name"`
	Dir        string          `json:"run_dir"`
	Job        string          `json:"job_id,omitempty"` // empty: never submitted
	State      slurm.State     `json:"state,omitempty"`
	Reason     string          `json:"reason,omitempty"`
	ExitCode   string          `json:"exit_code,omitempty"`
	Nodes      string          `json:"nodes,omitempty"`
	Restarts   int             `json:"restarts"` // by Slurm; -1 is not known
	Step       *int            `json:"step,omitempty"`
	Epoch      *int            `json:"epoch,omitempty"`
	Loss       *metrics.Number `json:"loss,omitempty"`
	Accuracy   *metrics.Number `json:"accuracy,omitempty"`
	Checkpoint *int            `json:"checkpoint_step,omitempty"`
	Finished   bool            `json:"finished"`
	Failure    string          `json:"failure,omitempty"`
}

func (c *statusCmd) Run(ctx context.Context, p *program) error {
	runs, err := c.runs(p)
	if err != nil {
		return err
	}
	all := make([]runStatus, len(runs))
	for i, r := range runs {
		all[i] = stored(r)
	}
	// What the run directories tell is shown even when Slurm does not answer.
	asked := p.askSlurm(ctx, all)
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
	rows := make([][]string, len(all))
	for i, s := range all {
		rows[i] = s.row()
	}
	p.table([]string{"RUN", "JOB", "STATE", "STEP", "EPOCH", "LOSS", "ACCURACY", "SAVED", "NOTE"}, rows)
	return asked
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
func (p *program) askSlurm(ctx context.Context, all []runStatus) error {
	var ids []string
	var at []int
	for i, s := range all {
		if s.Job != "" {
			ids, at = append(ids, s.Job), append(at, i)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	states, err := p.slurm().State(ctx, ids...)
	if err != nil {
		return err
	}
	for k, s := range states {
		r := &all[at[k]]
		r.State, r.Reason, r.ExitCode, r.Nodes, r.Restarts = s.State, s.Reason, s.ExitCode, s.Nodes, s.Restarts
	}
	return nil
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
		s.Finished = newest.Manifest != nil && newest.Manifest.Finished
	}
	return s
}

func (s runStatus) row() []string {
	note := ""
	switch {
	case s.Finished:
		note = "finished"
	case s.Failure != "":
		note = s.Failure
	case s.Reason != "" && s.Reason != "None":
		note = s.Reason
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
