package main

import (
	"context"

	"github.com/alecthomas/kong"
)

// cli is the command line; each command has a file of its own.
type cli struct {
	Launch launchCmd `cmd:"" help:"Start a job's ranks, here or in this allocation." group:"run"`
	Run    runCmd    `cmd:"" help:"Be one rank; launch and srun call this." group:"run"`
}

// run parses args and runs the command that they name.
func (p *program) run(ctx context.Context, args []string) error {
	var c cli
	exited := -1
	parser, err := kong.New(&c, kong.Name("ddpbatch"),
		kong.Description("Training jobs on Slurm clusters, from a TOML file to a finished run."),
		kong.Writers(p.Stdout, p.Stderr),
		kong.Exit(func(code int) { exited = code }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 80}),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(p))
	if err != nil {
		return err
	}
	k, err := parser.Parse(args)
	if exited >= 0 {
		return nil // help was asked for and shown
	}
	if err != nil {
		return err
	}
	return k.Run()
}
