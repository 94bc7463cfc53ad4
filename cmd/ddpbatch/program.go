package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
)

// program is what a command may touch of the process that it runs in.
type program struct {
	Stdout, Stderr io.Writer
	Env            []string
	Dir            string // current directory
}

// Main runs the program in this process and returns its exit code.
func Main() int {
	dir, err := os.Getwd()
	p := &program{Stdout: os.Stdout, Stderr: os.Stderr, Env: os.Environ(), Dir: dir}
	if err == nil {
		err = p.run(context.Background(), os.Args[1:])
	}
	return p.finish(err)
}

// lookup finds a variable of the environment.
func (p *program) lookup(name string) (string, bool) {
	for i := len(p.Env) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(p.Env[i], name+"="); ok {
			return v, true
		}
	}
	return "", false
}

// abs is path as seen from the current directory.
func (p *program) abs(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(p.Dir, path)
}

// runDir is the run directory of a job: the one asked for, or runs/NAME.
func (p *program) runDir(asked string, j *jobs.Job) rundir.Dir {
	if asked == "" {
		asked = filepath.Join("runs", string(j.Name))
	}
	return rundir.Dir{Path: p.abs(asked)}
}
