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
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/runs"
	"github.com/ddpbatch/ddpbatch/jobs/sbatch"
)

type initCmd struct {
	File    string   `arg:"" optional:"" default:"job.toml" name:"file" help:"File to write (default: ${default})."`
	Kind    string   `placeholder:"KIND" help:"Kind of job: a model of the built-in trainer (mlp, linear, cnn, or gpt), or your program (command or torchrun) (default: mlp)."`
	Site    string   `placeholder:"NAME" help:"Site profile. \"ddpbatch templates list\" lists the profiles."`
	Nodes   int      `placeholder:"N" help:"Number of nodes."`
	GPUs    int      `name:"gpus" placeholder:"N" help:"GPUs per node, one per rank."`
	Account string   `placeholder:"NAME" help:"Billing account. Some sites require one."`
	From    string   `placeholder:"SCRIPT" help:"Convert a batch script for sbatch, and list what could not be converted."`
	Args    []string `name:"arg" sep:"none" placeholder:"VALUE" help:"Argument of the script that --from converts, in the order of the script. Repeatable."`
	Wrap    bool     `help:"With --from, also write the script with \"ddpbatch launch\" in front of its program. Without this flag, it is written if the job file is not equivalent."`
	Force   bool     `help:"Replace the file if it exists."`
}

func (c *initCmd) Help() string {
	return `On a terminal, without flags, it prompts for the values. --from reads the directives,
the commands before the program, and the srun, mpirun, torchrun, or python line of a
batch script:

    ddpbatch init --from train.sbatch
    ddpbatch check job.toml

If the script has arguments, as in "sbatch train.sbatch a b", add --arg a --arg b.

If a job file cannot do the same as the script, for example because of a loop, it also
writes a batch script with the name of the job file, such as job.sbatch: the script, in
which only the line that starts the program uses "ddpbatch launch". If that is the name
of the original, the name is job-ddpbatch.sbatch. If that line cannot be replaced, the job
runs the original script.`
}

func (c *initCmd) Run(_ context.Context, p *program) error {
	if c.Nodes < 0 || c.GPUs < 0 {
		return usage("--nodes and --gpus must be at least 1")
	}
	if c.Wrap && c.From == "" {
		return usage("--wrap requires --from")
	}
	if len(c.Args) > 0 && c.From == "" {
		return usage("--arg requires --from")
	}
	if _, err := os.Lstat(p.abs(c.File)); err == nil && !c.Force {
		return errExists(c.File) // check before asking questions
	}
	text, result, mode, err := c.text(p)
	if err != nil {
		return err
	}
	base := strings.TrimSuffix(c.File, ".toml")
	script := base + ".sbatch"
	if result.Script != nil && runs.IsSameDir(p.abs(script), p.abs(c.From)) {
		script = base + "-ddpbatch.sbatch" // the original must not be lost, not even with --force
	}
	if result.Script != nil && !c.Force {
		if _, err := os.Lstat(p.abs(script)); err == nil {
			return errExists(script)
		}
	}
	if err := c.write(p, c.File, text, mode); err != nil {
		return err
	}
	if result.Script != nil {
		if err := c.write(p, script, result.Script, modePrivate); err != nil {
			return err
		}
	}
	for _, n := range result.Notes {
		where := c.From
		if n.Line > 0 {
			where = fmt.Sprintf("%s:%d", c.From, n.Line)
		}
		what := "not converted"
		if n.Changes {
			what = "changes what runs"
		}
		p.note("%s: %s: %s: %s", what, where, n.Text, n.Reason)
	}
	if len(result.Notes) > 0 {
		p.note("%s; %s", format.Count(len(result.Notes), "note"), changesSummary(result.Changes()))
	}
	if result.Script == nil {
		p.printf("wrote %s; next: ddpbatch check %s\n", c.File, shellQuote(c.File))
		return nil
	}
	next := "sbatch " + shellQuote(script)
	for _, a := range c.Args {
		next += " " + shellQuote(a)
	}
	p.printf("wrote %s, and %s, which is %s with `ddpbatch launch` in front of its program; next: %s, or complete %s\n",
		c.File, script, c.From, next, c.File)
	return nil
}

// changesSummary returns the number of notes that matter most.
func changesSummary(n int) string {
	switch n {
	case 0:
		return "none of them changes what runs"
	case 1:
		return "1 of them changes what runs"
	}
	return fmt.Sprintf("%d of them change what runs", n)
}

// write creates a file, or replaces it with --force.
func (c *initCmd) write(p *program, file string, text []byte, mode fs.FileMode) error {
	err := createFile(p.abs(file), mode, c.Force, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
	if errors.Is(err, fs.ErrExist) {
		return errExists(file)
	}
	return err
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
func (c *initCmd) text(p *program) ([]byte, sbatch.Result, fs.FileMode, error) {
	kinds := jobs.StarterKinds()
	if c.From != "" {
		if c.Kind != "" || c.Nodes > 0 || c.GPUs > 0 || c.Account != "" {
			return nil, sbatch.Result{}, 0, usage("--from is not valid with --kind, --nodes, --gpus, or --account, which come from the script")
		}
		src, err := readText(p.abs(c.From))
		if err != nil {
			return nil, sbatch.Result{}, 0, exitError{exitUsage, fmt.Errorf("read batch script: %w", err)}
		}
		options := p.scriptOptions(c.Site, c.Wrap)
		options.Args, options.Path = c.Args, c.From
		if !filepath.IsLocal(c.From) {
			options.Path = p.abs(c.From)
		}
		result, err := sbatch.Read(filepath.Base(c.From), src, options)
		if err != nil {
			return nil, sbatch.Result{}, 0, err
		}
		if result.HasEnviron {
			return result.TOML, result, modePrivate, nil
		}
		return result.TOML, result, modePublic, nil
	}
	if c.Kind == "" && c.Site == "" && c.Nodes == 0 && c.GPUs == 0 && c.Account == "" && p.canAnswer() {
		if err := c.ask(p); err != nil {
			return nil, sbatch.Result{}, 0, err
		}
	}
	if c.Kind == "" {
		c.Kind = kinds[0]
	}
	if !slices.Contains(kinds, c.Kind) {
		return nil, sbatch.Result{}, 0, usage(fmt.Sprintf("unknown kind %q; the kinds are %s", c.Kind, listed(kinds)))
	}
	text, err := jobs.Starter(c.Kind)
	if err != nil {
		return nil, sbatch.Result{}, 0, err
	}
	shape := jobs.Shape{Site: c.Site, Nodes: c.Nodes, GPUs: c.GPUs, File: shellQuote(c.File), Account: c.Account}
	if c.Site != "" {
		site, err := p.findSite(c.Site)
		if err != nil {
			return nil, sbatch.Result{}, 0, err
		}
		shape.Required, shape.CPUsPerTask = site.Missing(), int(site.Defaults.CPUsPerTask)
		if c.Account == "" && slices.Contains(shape.Required, "account") {
			p.note("%s requires an account: replace the account in %s with yours", c.Site, c.File)
		}
	}
	return jobs.ApplyShape(text, shape), sbatch.Result{}, modePublic, nil
}

// scriptOptions describes the surroundings of a batch script.
func (p *program) scriptOptions(site string, wrap bool) sbatch.Options {
	home, _ := p.lookup("HOME")
	name, _ := p.lookup("USER")
	if !filepath.IsAbs(home) {
		home = ""
	}
	return sbatch.Options{Site: site, Home: home, User: name, Dir: p.Dir, Wrap: wrap}
}
