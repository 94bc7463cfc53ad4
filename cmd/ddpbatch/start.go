package main

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"github.com/ddpbatch/ddpbatch/internal/environ"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

// startCmd starts a program from PATH, for steps of Slurm ([environ.StartArgv]). A shell could change
// the environment: dash removes the functions that bash exports.
type startCmd struct {
	Dir     string   `placeholder:"DIR" help:"Start the program in this directory, or in / if the node does not have it."`
	Owner   int      `placeholder:"UID" help:"Owner of DIR where ddpbatch was called."`
	Command []string `arg:"" passthrough:"" name:"command" help:"Program and arguments, after --."`
}

// exitNotFound is the exit code of shells if a program is not in PATH.
const exitNotFound = 127

func (c *startCmd) Run(_ context.Context, p *program) error {
	argv, err := commandToRun(c.Command, "ddpbatch start -- nvidia-smi")
	if err != nil {
		return err
	}
	host, _ := os.Hostname()
	if c.Dir != "" {
		if err := c.enter(); err != nil {
			p.note("warning: on %s: the command starts in /: %v", host, err)
			if err := os.Chdir("/"); err != nil {
				return err
			}
		}
	}
	path, err := environ.LookPath(p.Env, argv[0])
	if err != nil {
		return exitError{exitNotFound, hints.Errorf("load the module that provides it, or write its absolute path", "on %s: %w", host, err)}
	}
	return fmt.Errorf("start %q: %w", path, syscall.Exec(path, argv, p.Env))
}

// enter changes to the directory. It returns an error if the node has a different directory at its
// path, in which other users can create files: one of another owner, or one such as /tmp.
func (c *startCmd) enter() error {
	if err := os.Chdir(c.Dir); err != nil {
		return err
	}
	info, err := os.Stat(".")
	if err != nil {
		return err
	}
	switch owner, ok := safefile.Owner(info); {
	case ok && owner != c.Owner:
		return fmt.Errorf("%q belongs to user %d here, not to user %d", c.Dir, owner, c.Owner)
	case info.Mode().Perm()&0o002 != 0:
		return fmt.Errorf("every user can write to %q", c.Dir)
	}
	return nil
}
