package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
)

type cancelCmd struct {
	Which string `arg:"" name:"run" help:"Run name, run directory, job file, or job ID; also a sweep or one of its elements."`
}

func (c *cancelCmd) Help() string {
	return `If you submit the run again, it resumes from its last checkpoint. You can cancel only
your own runs, and only jobs that were submitted from their run directories: Slurm
must have the submission in the comment of the job. Use scancel for other jobs.

For a run that was launched without Slurm, the command requests that the launcher save
and stop. Run the command on the host of the launcher. A second cancel stops the ranks
immediately.`
}

func (c *cancelCmd) Run(ctx context.Context, p *program) error {
	run, err := p.findSettled(ctx, c.Which)
	if err != nil {
		return err
	}
	run, release, err := run.holdOwn()
	if err != nil {
		return err
	}
	defer release()
	if run.record.Sweep != nil {
		return p.cancelSweep(ctx, run)
	}
	if run.isLaunched() {
		return p.cancelLaunch(run)
	}
	id, err := run.job()
	if err != nil {
		return err
	}
	// If Slurm does not return a state, try to cancel the job anyway.
	states, err := p.slurmFor(run).State(ctx, id)
	if err == nil && states[0].Done() {
		p.printf("job %s (%s) has ended already: %s\n", id, run.record.Name, states[0])
		return nil
	}
	if err := p.checkComment(ctx, run); err != nil {
		return err
	}
	if err := p.slurm().Cancel(ctx, id); err != nil {
		return err
	}
	if err == nil {
		p.rememberCancelled(run, states[0])
	}
	p.printf("asked Slurm to end job %s (%s)\n", id, run.record.Name)
	return nil
}

// holdOwn opens and holds the directory of a run of this user; see [rundir.OpenOwn]. It
// rejects other users' runs, because their records could name any job of this user.
func (r knownRun) holdOwn() (held knownRun, release func(), err error) {
	dir, release, err := rundir.OpenOwn(r.dir.Path)
	if err != nil {
		info, missing := os.Lstat(r.dir.Path)
		switch {
		case !isOwn(r.dir.Path):
			err = hints.Add(err, "only its owner can cancel the run; end your own jobs with `scancel`")
		case missing == nil && info.Mode()&fs.ModeSymlink != 0:
			err = hints.Add(err, "name the directory that the link leads to")
		}
		return knownRun{}, nil, exitError{exitUsage, err}
	}
	held.dir = dir
	if held.record, err = dir.ReadRecord(); err != nil {
		release()
		return knownRun{}, nil, err
	}
	return held, release, nil
}

// checkComment returns an error if neither the comment nor the script of the run's last job
// names the submission. Slurm may have reused the job ID for another job. It returns nil if Slurm does
// not respond, and for user-written batch scripts that call the launcher, because their jobs
// have no such comment.
func (p *program) checkComment(ctx context.Context, run knownRun) error {
	s := run.record.Last()
	if s == nil || s.ID == "" {
		return nil
	}
	ids, err := p.slurm().FindByComment(ctx, s.Comment())
	id, _, _ := strings.Cut(s.JobID, "_")
	if err != nil || slices.Contains(ids, id) {
		return nil
	}
	// Some centers replace comments. The job's script in this directory identifies it, too.
	jobs, err := p.slurm().FindByScript(ctx, run.dir.Script())
	if err != nil || slices.ContainsFunc(jobs, func(j slurm.SubmittedJob) bool { return j.ID == id }) {
		return nil
	}
	return hints.Add(fmt.Errorf("cancel job %s: Slurm has no job of yours with this number and the comment %q: it was not submitted from run directory %q",
		id, s.Comment(), run.dir.Path), "end the job with `scancel "+id+"` if it is the right one")
}

// rememberCancelled records the end of a job that was canceled before it started. Slurm 22.05
// immediately forgets a pending array task that is canceled, and no other record of its end
// exists.
func (p *program) rememberCancelled(run knownRun, was slurm.JobState) {
	if was.State != slurm.StatePending {
		return
	}
	if err := run.dir.WriteEnd(rundir.End{JobID: was.ID, Exit: exitCancelled, Time: time.Now().UTC()}); err != nil {
		p.note("WARNING: %v", err)
	}
}

// cancelSweep cancels all active trials of a sweep. It asks local launchers to stop, and calls
// scancel once per job array.
func (p *program) cancelSweep(ctx context.Context, run knownRun) error {
	elements, err := run.elements()
	if err != nil {
		return err
	}
	launched := 0
	for _, e := range elements {
		if !e.isLaunched() {
			continue
		}
		if _, over := endOfLaunch(e.dir, time.Now()); !over {
			launched++
			if err := p.cancelLaunch(e); err != nil {
				return err
			}
		}
	}
	asked, ids := jobsAmong(elements)
	if len(ids) == 0 && launched > 0 {
		return nil
	}
	states, err := p.slurmFor(asked...).State(ctx, ids...)
	if err != nil {
		return err
	}
	var arrays []string
	open := map[string]int{}
	for i, s := range states {
		if s.State == slurm.StateUnknown || s.Done() {
			continue
		}
		array, _, _ := strings.Cut(s.ID, "_")
		if open[array]++; open[array] == 1 {
			if err := p.checkComment(ctx, asked[i]); err != nil {
				return err
			}
			arrays = append(arrays, array)
		}
	}
	if len(arrays) == 0 && launched == 0 {
		p.printf("no element of %s is queued or running\n", run.record.Name)
	}
	for _, id := range arrays {
		// Trials that were submitted again have already ended in this array.
		if err := p.slurm().Cancel(ctx, id); err != nil {
			return err
		}
		p.printf("asked Slurm to end job %s (%s of %s)\n", id, format.Count(open[id], "element"), run.record.Name)
	}
	for i, s := range states {
		p.rememberCancelled(asked[i], s)
	}
	return nil
}
