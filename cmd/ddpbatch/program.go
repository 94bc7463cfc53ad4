package main

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"

	"github.com/alecthomas/kong"

	"github.com/ddpbatch/ddpbatch/internal/environ"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// A program is one invocation of ddpbatch, with its streams, environment, and directory.
type program struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Env            []string
	Dir            string   // current directory; empty if it does not exist
	dirNeeded      bool     // whether a relative path was used while Dir was empty
	Command        []string // command after "--" of `ddpbatch launch`; nil without "--"
}

// run executes the command in args and returns the exit code.
func (p *program) run(ctx context.Context, args []string) int {
	out := &stream{name: "standard output", to: p.Stdout}
	p.Stdout, p.Stderr = out, &stream{name: "standard error", to: p.Stderr}
	usage, err := p.command(ctx, args)
	if err == nil {
		err = out.writeError()
	}
	if err != nil && p.dirNeeded {
		err = hints.Errorf("change to a directory that exists, or use absolute paths", "the current directory does not exist: %w", err)
	}
	report(p.Stderr, err, usage)
	return exitCode(err)
}

// command parses args and runs the command. It returns the command's usage line for errors.
func (p *program) command(ctx context.Context, args []string) (usage string, err error) {
	var c cli
	helped := false
	helpTo := p.Stdout
	if len(args) == 0 {
		helpTo = p.Stderr // scripts expect no help text on stdout
	}
	parser, err := newParser(&c,
		kong.Writers(helpTo, p.Stderr),
		kong.Exit(func(int) { helped = true }), // kong calls this after it prints the help
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(p),
	)
	if err != nil {
		return "", err
	}
	if len(args) == 1 && args[0] == "--version" {
		args = []string{"version"} // accept the common flag as well
	}
	switch {
	case len(args) == 0:
		_, _ = parser.Parse([]string{"--help"})
		return "", exitError{exitUsage, nil}
	case args[0] == "help":
		args = append(slices.Clone(args[1:]), "--help")
	}
	args, command, found := cutCommand(args)
	if found {
		p.Command = append([]string{}, command...)
	}
	parsed, err := parser.Parse(args)
	if helped {
		return "", nil
	}
	var wrong *kong.ParseError
	if errors.As(err, &wrong) {
		return usageOf(wrong.Context), err
	}
	if err != nil {
		return "", err
	}
	return usageOf(parsed), parsed.Run()
}

func usageOf(c *kong.Context) string {
	if node := c.Selected(); node != nil {
		return c.Model.Name + " " + node.Summary()
	}
	return c.Model.Name + " <command> [flags]; `" + c.Model.Name + " --help` lists the commands"
}

// lookup returns the value of an environment variable. The last entry wins.
func (p *program) lookup(name string) (string, bool) { return environ.Lookup(p.Env, name) }

// abs returns path as a clean absolute path. For a relative path, it records in p.dirNeeded if
// the current directory does not exist.
func (p *program) abs(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	p.dirNeeded = p.dirNeeded || p.Dir == ""
	return filepath.Join(p.Dir, path)
}

// slurm returns a Slurm client that uses the program's environment.
func (p *program) slurm() slurm.Client { return slurm.Client{Environ: p.Env} }
