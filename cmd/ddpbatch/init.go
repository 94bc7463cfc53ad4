package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/ddpbatch/ddpbatch/jobs"
)

type initCmd struct {
	File  string `arg:"" optional:"" default:"job.toml" name:"file" help:"File to write; default ${default}."`
	Kind  string `placeholder:"KIND" help:"What the job does: mlp (default), linear, cnn or gpt, trained by ddpbatch; command or torchrun, your own program."`
	Force bool   `help:"Write over a file that is there."`
}

func (c *initCmd) Run(_ context.Context, p *program) error {
	kinds := jobs.StarterKinds()
	if c.Kind == "" {
		c.Kind = kinds[0]
	}
	if !slices.Contains(kinds, c.Kind) {
		return usage(fmt.Sprintf("there is no kind %q; the kinds are %s", c.Kind, listed(kinds)))
	}
	text, err := jobs.Starter(c.Kind)
	if err != nil {
		return err
	}
	flags := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if c.Force {
		flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	f, err := os.OpenFile(p.abs(c.File), flags, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return hinted{fmt.Errorf("%q is there already", c.File), "--force writes over it; or name another file"}
	}
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	p.printf("wrote %s; next: ddpbatch check %s\n", c.File, shellQuote(c.File))
	return nil
}
