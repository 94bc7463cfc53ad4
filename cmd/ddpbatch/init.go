package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/sbatch"
)

type initCmd struct {
	File    string `arg:"" optional:"" default:"job.toml" name:"file" help:"File to write (default: ${default})."`
	Kind    string `placeholder:"KIND" help:"Kind of job: a model of the built-in trainer (mlp, linear, cnn, or gpt), or your program (command or torchrun) (default: mlp)."`
	Site    string `placeholder:"NAME" help:"Site profile. \"ddpbatch templates list\" lists the profiles."`
	Nodes   int    `placeholder:"N" help:"Number of nodes."`
	GPUs    int    `name:"gpus" placeholder:"N" help:"GPUs per node, one per rank."`
	Account string `placeholder:"NAME" help:"Billing account. Some sites require one."`
	From    string `placeholder:"SCRIPT" help:"Convert a batch script for sbatch, and list what could not be converted."`
	Force   bool   `help:"Replace the file if it exists."`
}

func (c *initCmd) Help() string {
	return `On a terminal, without flags, it prompts for the values. --from reads the directives,
modules, environment variables, and the srun, mpirun, torchrun, or python line of a
batch script:

    ddpbatch init --from train.sbatch
    ddpbatch check job.toml`
}

func (c *initCmd) Run(_ context.Context, p *program) error {
	if c.Nodes < 0 || c.GPUs < 0 {
		return usage("--nodes and --gpus must be at least 1")
	}
	if _, err := os.Lstat(p.abs(c.File)); err == nil && !c.Force {
		return errExists(c.File) // check before asking questions
	}
	text, notes, mode, err := c.text(p)
	if err != nil {
		return err
	}
	err = createFile(p.abs(c.File), mode, c.Force, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
	if errors.Is(err, fs.ErrExist) {
		return errExists(c.File)
	}
	if err != nil {
		return err
	}
	for _, n := range notes {
		where := c.From
		if n.Line > 0 {
			where = fmt.Sprintf("%s:%d", c.From, n.Line)
		}
		p.note("not converted: %s: %s: %s", where, n.Text, n.Reason)
	}
	p.printf("wrote %s; next: ddpbatch check %s\n", c.File, shellQuote(c.File))
	return nil
}

func errExists(file string) error {
	return exitError{exitUsage, hints.Add(fmt.Errorf("%q already exists", file), "replace it with --force, or choose a different file")}
}

// Permissions of a new job file, before the umask. A job file with the values of exported
// variables is private, because ddpbatch cannot recognize every secret.
const (
	modePublic  fs.FileMode = 0o666
	modePrivate fs.FileMode = 0o600
)

// text returns the contents of the job file, notes about lines that were not converted, and
// the permissions of the file.
func (c *initCmd) text(p *program) ([]byte, []sbatch.Note, fs.FileMode, error) {
	kinds := jobs.StarterKinds()
	if c.From != "" {
		if c.Kind != "" || c.Nodes > 0 || c.GPUs > 0 || c.Account != "" {
			return nil, nil, 0, usage("--from is not valid with --kind, --nodes, --gpus, or --account, which come from the script")
		}
		src, err := readText(p.abs(c.From))
		if err != nil {
			return nil, nil, 0, exitError{exitUsage, fmt.Errorf("read batch script: %w", err)}
		}
		result, err := sbatch.Read(filepath.Base(c.From), src, c.Site)
		if err != nil {
			return nil, nil, 0, err
		}
		if result.HasEnviron {
			return result.TOML, result.Notes, modePrivate, nil
		}
		return result.TOML, result.Notes, modePublic, nil
	}
	if c.Kind == "" && c.Site == "" && c.Nodes == 0 && c.GPUs == 0 && c.Account == "" && p.canAnswer() {
		if err := c.ask(p); err != nil {
			return nil, nil, 0, err
		}
	}
	if c.Kind == "" {
		c.Kind = kinds[0]
	}
	if !slices.Contains(kinds, c.Kind) {
		return nil, nil, 0, usage(fmt.Sprintf("unknown kind %q; the kinds are %s", c.Kind, listed(kinds)))
	}
	text, err := jobs.Starter(c.Kind)
	if err != nil {
		return nil, nil, 0, err
	}
	shape := jobs.Shape{Site: c.Site, Nodes: c.Nodes, GPUs: c.GPUs, File: shellQuote(c.File), Account: c.Account}
	if c.Site != "" {
		site, err := p.findSite(c.Site)
		if err != nil {
			return nil, nil, 0, err
		}
		shape.Required, shape.CPUsPerTask = site.Missing(), int(site.Defaults.CPUsPerTask)
		if c.Account == "" && slices.Contains(shape.Required, "account") {
			p.note("%s requires an account: replace the account in %s with yours", c.Site, c.File)
		}
	}
	return jobs.ApplyShape(text, shape), nil, modePublic, nil
}
