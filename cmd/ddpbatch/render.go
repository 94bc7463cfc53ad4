package main

import (
	"context"
	"fmt"
	"os"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/templates"
)

type renderCmd struct {
	Job    string   `arg:"" name:"job.toml" help:"Job file."`
	RunDir string   `placeholder:"DIR" help:"Run directory (default: runs/NAME in the current directory)."`
	Set    []string `sep:"none" placeholder:"KEY=VALUE" help:"A value that stands over the file's, such as train.batch=64; may be repeated."`
}

func (c *renderCmd) Help() string {
	return `The output is the bytes that submit would send. Nothing is written or sent.`
}

func (c *renderCmd) Run(_ context.Context, p *program) error {
	f, err := p.load(c.Job, c.Set...)
	if err != nil {
		return err
	}
	script, err := f.script(p.runDir(c.RunDir, f.job, f.base), nil)
	if err != nil {
		return err
	}
	_, err = p.Stdout.Write(script)
	return err
}

// script is the batch script of the job; of a sweep, for the elements given, or
// all of them. It starts this very program on the nodes, so the program must be at
// the same path there.
func (f *jobFile) script(dir rundir.Dir, elements []int) ([]byte, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the path of this program: %w", err)
	}
	in := templates.Input{Job: f.job, Site: f.site, Binary: binary, RunDir: dir.Path}
	if f.job.Sweep != nil {
		in.Array = f.job.Sweep.Array(elements)
	}
	script, err := templates.Render(in)
	if err != nil {
		// The job file was good: what no script can hold is one of the paths.
		return nil, exitError{exitUsage, err}
	}
	return script, nil
}
