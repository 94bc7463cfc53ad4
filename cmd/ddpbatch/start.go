package main

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"github.com/ddpbatch/ddpbatch/internal/environ"
	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// startCmd starts a program from PATH, for steps of Slurm ([environ.FromPath]). A shell could change
// the environment: dash removes the functions that bash exports.
type startCmd struct {
	Command []string `arg:"" passthrough:"" name:"command" help:"Program and arguments, after --."`
}

// exitNotFound is the exit code of shells if a program is not in PATH.
const exitNotFound = 127

func (c *startCmd) Run(_ context.Context, p *program) error {
	argv, err := commandToRun(c.Command, "ddpbatch start -- nvidia-smi")
	if err != nil {
		return err
	}
	path, err := environ.LookPath(p.Env, argv[0])
	if err != nil {
		host, _ := os.Hostname()
		return exitError{exitNotFound, hints.Errorf("load the module that provides it, or write its path, such as "+shellQuote("./"+argv[0]), "on %s: %w", host, err)}
	}
	return fmt.Errorf("start %q: %w", path, syscall.Exec(path, argv, p.Env))
}
