package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/alecthomas/kong"

	"github.com/ddpbatch/ddpbatch/cmd/ddpbatch/manual"
	"github.com/ddpbatch/ddpbatch/jobs"
)

// `make reference` regenerates docs/reference.
//
//go:generate go run . manual reference ../../docs/reference

type schemaCmd struct{}

func (schemaCmd) Help() string {
	return `Editors with TOML support, such as taplo and Even Better TOML, use the schema to
complete and check job files. "ddpbatch init" writes a #:schema line with its URL. To
work offline, save the schema to a file, and put its path into that line:

    ddpbatch schema > ~/.config/ddpbatch.schema.json`
}

func (schemaCmd) Run(p *program) error {
	_, err := p.Stdout.Write(jobs.Schema())
	return err
}

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"Shell: bash, zsh, or fish."`
}

func (completionCmd) Help() string {
	return `To enable completion in the current shell, run the line for your shell:

    source <(ddpbatch completion bash)
    source <(ddpbatch completion zsh)
    ddpbatch completion fish | source

"make install" installs the scripts for all shells.`
}

func (c *completionCmd) Run(k *kong.Context, p *program) error {
	described := manual.Describe(k.Model, description, exitMeanings)
	var settings []string
	for _, key := range jobs.Keys() {
		if !key.Table {
			settings = append(settings, key.Name+"=")
		}
	}
	described.Complete("site", p.finder().Names())
	described.CompletePrefixes("set", settings)
	script, err := manual.Completion(described, c.Shell)
	if err != nil {
		return err
	}
	_, err = p.Stdout.Write(script)
	return err
}

// manualCmd generates the reference and the manual pages, for the repository and for packages.
type manualCmd struct {
	What string `arg:"" enum:"reference,man" help:"Kind of pages: reference or man."`
	Dir  string `arg:"" help:"Directory to write the pages to."`
	Day  string `default:"unknown" help:"Day of the release for manual pages, such as 2026-01-31."`
}

func (c *manualCmd) Run(k *kong.Context, p *program) error {
	described := manual.Describe(k.Model, description, exitMeanings)
	pages := manual.Reference(described, jobs.Keys())
	if c.What == "man" {
		pages = manual.Man(described, jobs.Keys(), manual.Release{Version: version(), Day: c.Day})
	}
	dir := p.abs(c.Dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, page := range pages {
		// A link of another user in the directory is replaced.
		err := createFile(filepath.Join(dir, page.Name), 0o644, true, func(w io.Writer) error { _, err := w.Write(page.Text); return err })
		if err != nil {
			return fmt.Errorf("write %s: %w", page.Name, err)
		}
	}
	return nil
}
