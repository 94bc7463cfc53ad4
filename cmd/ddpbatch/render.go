package main

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/ddpbatch/ddpbatch/jobs/jobfile"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/templates"
)

type renderCmd struct {
	Job    string   `arg:"" name:"job.toml" help:"Job file."`
	RunDir string   `placeholder:"DIR" help:"Run directory (default: runs/NAME in the current directory)."`
	Set    []string `sep:"none" placeholder:"KEY=VALUE" help:"Override a key of the job file, such as train.batch=64. Repeatable."`
}

func (c *renderCmd) Help() string {
	return `The output is the exact script that submit would send. Nothing is written or submitted.`
}

func (c *renderCmd) Run(_ context.Context, p *program) error {
	f, err := p.load(c.Job, c.Set...)
	if err != nil {
		return err
	}
	text, err := script(f, p.runDir(c.RunDir, f.Job, f.Base), nil)
	if err != nil {
		return err
	}
	_, err = p.Stdout.Write(text)
	return err
}

// script returns the batch script of the job. For a sweep, elements selects the trials; nil
// selects all of them. The script starts this executable on the nodes. The executable must
// have the same path there.
func script(f *jobfile.File, dir rundir.Dir, elements []int) ([]byte, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the path of this program: %w", err)
	}
	in := templates.Input{Job: f.Job, Site: f.Site, Binary: binary, RunDir: dir.Path}
	if f.Job.Sweep != nil {
		in.Array = f.Job.Sweep.Array(elements)
		for _, e := range f.Job.Sweep.Trials {
			if elements != nil && !slices.Contains(elements, e.Index) {
				continue
			}
			spec, err := e.Job.Source()
			if err != nil {
				return nil, err
			}
			in.Digests = append(in.Digests, templates.ElementDigest{Index: e.Index, Digest: rundir.JobDigest(spec, f.Site.Source(), f.Base)})
		}
	} else {
		in.Digest = rundir.JobDigest(f.Spec, f.Site.Source(), f.Base)
	}
	text, err := templates.Render(in)
	if err != nil {
		// The job file is valid, so one of the paths contains characters that a script cannot
		// hold.
		return nil, exitError{exitUsage, err}
	}
	return text, nil
}
