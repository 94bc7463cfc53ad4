package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/printable"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/runs"
	"github.com/ddpbatch/ddpbatch/jobs/submit"
)

type repairCmd struct {
	Which string `arg:"" name:"run" help:"Run name, run directory, or job file."`
	Job   string `placeholder:"FILE" help:"Job file of the run (default: the one in the run directory)."`
}

func (c *repairCmd) Help() string {
	return `Use it if record.json of a run directory is corrupt or missing, or after you copied
checkpoints into a new directory. The new record contains the ID of the run that wrote
the checkpoints, and the jobs that the directory and Slurm still list. The old file is
renamed to record.json.old. Checkpoints do not change. Afterward, submit or launch the
job again: it resumes from its last checkpoint.`
}

func (c *repairCmd) Run(ctx context.Context, p *program) error {
	req, err := c.request(p)
	if err != nil {
		return err
	}
	s := submit.Submitter{Slurm: p.slurm(), Say: func(line string) { p.note("%s", line) }}
	done, err := s.Repair(ctx, req)
	if err != nil {
		return err
	}
	name := printable.Line(done.Record.Name)
	if done.Intact {
		p.printf("the record of %s is valid: nothing to repair\n", name)
		return nil
	}
	p.printf("rebuilt the record of %s: run %s, %s", name, done.Record.Run, format.Count(done.Checkpoints, "checkpoint"))
	if done.Checkpoints > 0 {
		p.printf(" up to step %d", done.Newest)
	}
	if id := done.Record.LastJob(); id != "" {
		p.printf(", last job %s", id)
	}
	p.printf("\n")
	if done.Backup != "" {
		p.printf("renamed the old record to %s\n", p.short(done.Backup))
	}
	if done.BaseGuessed {
		p.note("relative paths in the job file start at %q; if the job file was in a different directory, submit the run with that job file", done.Record.Base)
	}
	return nil
}

// request returns the run directory, which may lack a record, and its job.
func (c *repairCmd) request(p *program) (req submit.RepairRequest, err error) {
	if c.Which == "" {
		return req, usage("the name of the run is empty")
	}
	req.Version = version()
	file, isFile := c.Job, false
	// Another user may be able to create a file or a directory with the name of the user's run.
	own, isName := p.runStore().OwnDir(c.Which)
	if info, err := os.Stat(p.abs(c.Which)); !isName && err == nil && info.Mode().IsRegular() {
		if file != "" {
			return req, usage("give only one job file: as the argument or with --job")
		}
		file, isFile = c.Which, true
	}
	if file != "" {
		if err := p.checkFallbackDir(true, file); err != nil {
			return req, err
		}
		if req.Job, err = readJob(p.abs(file)); err != nil {
			return req, err
		}
		req.Base = filepath.Dir(p.abs(file))
	}
	path := p.abs(c.Which)
	if isName {
		path = own
	} else if isFile {
		path = p.runDir("", req.Job, req.Base).Path
	} else if _, err := os.Stat(path); err != nil {
		name := c.Which
		if sweep, index, ok := strings.Cut(name, "/"); ok {
			name = filepath.Join(sweep, "elements", index)
		}
		path = p.abs(filepath.Join(runs.DefaultDir, name))
	}
	if req.Dir, err = rundir.Existing(path); errors.Is(err, fs.ErrNotExist) {
		return req, exitError{exitUsage, hints.Add(fmt.Errorf("no run directory %q", path), "give the path of the run directory")}
	} else if err != nil {
		return req, err
	}
	if req.Dir, _, err = req.Dir.Hold(); err != nil { // until the process exits
		return req, err
	}
	if _, err := req.Dir.ReadRecord(); errors.Is(err, fs.ErrNotExist) && !req.Dir.IsRepairable() {
		return req, exitError{exitUsage, fmt.Errorf("%q is not a run directory: it contains neither checkpoints nor a record", path)}
	}
	return req, c.stored(&req)
}

// stored reads the job from the run directory, unless the user named a job file. If the run
// directory lacks a job file, stored sets req.Spec, so that the repair writes one.
func (c *repairCmd) stored(req *submit.RepairRequest) error {
	spec, err := req.Dir.ReadSpec()
	switch {
	case err == nil && req.Job != nil:
		return nil
	case err == nil:
		req.Job, err = jobs.Parse(req.Dir.Spec(), spec)
		return err
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case req.Job == nil:
		return exitError{exitUsage, hints.Add(fmt.Errorf("run directory %q has no job file", req.Dir.Path), "give the job file of the run with --job FILE")}
	}
	req.Spec, err = req.Job.Source()
	return err
}
