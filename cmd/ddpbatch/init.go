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
	File    string `arg:"" optional:"" default:"job.toml" name:"file" help:"File to write; default ${default}."`
	Kind    string `placeholder:"KIND" help:"What the job does: mlp (default), linear, cnn or gpt, trained by ddpbatch; command or torchrun, your own program."`
	Site    string `placeholder:"NAME" help:"Profile of the centre: see ddpbatch templates list."`
	Nodes   int    `placeholder:"N" help:"Nodes."`
	GPUs    int    `name:"gpus" placeholder:"N" help:"GPUs of each node, one for each rank."`
	Account string `placeholder:"NAME" help:"Account to charge; some centres require one."`
	From    string `placeholder:"SCRIPT" help:"Make the job file of a batch script for sbatch, and tell what could not be carried over."`
	Force   bool   `help:"Write over a file that is there."`
}

func (c *initCmd) Help() string {
	return `On a terminal, without flags, it asks. --from reads directives, modules, environment,
and the srun, mpirun, torchrun or python line:

    ddpbatch init --from train.sbatch
    ddpbatch check job.toml`
}

func (c *initCmd) Run(_ context.Context, p *program) error {
	if c.Nodes < 0 || c.GPUs < 0 {
		return usage("--nodes and --gpus must be at least 1")
	}
	if _, err := os.Lstat(p.abs(c.File)); err == nil && !c.Force {
		return errThere(c.File) // check before asking questions
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
		return errThere(c.File)
	}
	if err != nil {
		return err
	}
	for _, n := range notes {
		where := c.From
		if n.Line > 0 {
			where = fmt.Sprintf("%s:%d", c.From, n.Line)
		}
		p.note("not carried over: %s: %s: %s", where, n.Text, n.Reason)
	}
	p.printf("wrote %s; next: ddpbatch check %s\n", c.File, shellQuote(c.File))
	return nil
}

func errThere(file string) error {
	return exitError{exitUsage, hints.Add(fmt.Errorf("%q is there already", file), "--force writes over it; or name another file")}
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
			return nil, nil, 0, usage("--from takes kind, nodes, GPUs, and account from the script")
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
		return nil, nil, 0, usage(fmt.Sprintf("there is no kind %q; the kinds are %s", c.Kind, listed(kinds)))
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
			p.note("%s requires an account: replace the one in %s with yours", c.Site, c.File)
		}
	}
	return jobs.Shaped(text, shape), nil, modePublic, nil
}
