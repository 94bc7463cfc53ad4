package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/printable"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/templates/sites"
)

type templatesCmd struct {
	List  templatesListCmd  `cmd:"" help:"List the site profiles."`
	Show  templatesShowCmd  `cmd:"" help:"Print a site profile, for example as a template for your own."`
	Check templatesCheckCmd `cmd:"" help:"Validate site profiles and report every error."`
}

type templatesListCmd struct {
	JSON bool `help:"Print the result as JSON."`
}

func (c *templatesListCmd) Help() string {
	return `A job file names its site, such as site = "lumi", or the path of a profile. ddpbatch
searches for profiles in the directories in $` + sitesVariable + ` (separated by colons), in
` + sitesDir + `, and among its built-in profiles.`
}

// siteInfo describes a site in the output of templates list --json.
type siteInfo struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	Read  string `json:"read"` // date on which the center's documentation was last read
}

func (c *templatesListCmd) Run(_ context.Context, p *program) error {
	finder := p.finder()
	var all []siteInfo
	var rows [][]string
	for _, name := range finder.Names() {
		site, err := finder.Find(name, p.Dir)
		if err != nil {
			p.note("skipped: %s", p.unusable(name, err))
			continue
		}
		all = append(all, siteInfo{name, string(site.Title), string(site.Read)})
		rows = append(rows, []string{name, string(site.Title), string(site.Read)})
	}
	if c.JSON {
		return p.printJSON(all)
	}
	p.table([]string{"SITE", "TITLE", "SOURCES READ"}, rows)
	return nil
}

// unusable explains in one line why a profile is skipped.
func (p *program) unusable(name string, err error) string {
	var spec jobs.Diagnostics
	if errors.As(err, &spec) && len(spec) > 0 {
		return fmt.Sprintf("%s: %s; run `ddpbatch templates check %s`", name, format.Count(len(spec), "error"), shellQuote(spec[0].File))
	}
	return fmt.Sprintf("%s: %v", name, err)
}

type templatesShowCmd struct {
	Site string `arg:"" help:"Site name, or path of a profile."`
}

func (c *templatesShowCmd) Run(_ context.Context, p *program) error {
	site, err := p.findSite(c.Site)
	if err != nil {
		return err
	}
	_, err = io.WriteString(p.Stdout, printable.Text(string(site.Source())))
	return err
}

func (p *program) findSite(name string) (*sites.Profile, error) {
	finder := p.finder()
	site, err := finder.Find(name, p.Dir)
	if errors.Is(err, sites.ErrUnknown) {
		return nil, exitError{exitUsage, hints.Add(fmt.Errorf("no profile for site %q", name), "known sites: "+listed(finder.Names()))}
	}
	if err != nil {
		return nil, exitError{exitUsage, err}
	}
	return site, nil
}

type templatesCheckCmd struct {
	Files []string `arg:"" name:"file" help:"Profile files."`
}

func (c *templatesCheckCmd) Run(_ context.Context, p *program) error {
	bad := false
	for _, path := range c.Files {
		src, err := readText(p.abs(path))
		if errors.Is(err, fs.ErrNotExist) && slices.Contains(p.finder().Names(), path) {
			err = hints.Add(err, "this command checks files: `ddpbatch templates show "+shellQuote(path)+"` prints the profile of this name")
		}
		var site *sites.Profile
		if err == nil {
			site, err = sites.Parse(path, path, src)
		}
		if err != nil {
			bad = true
			report(p.Stderr, err, "")
			continue
		}
		p.printf("%s: valid: %s, %s\n", path, site.Title, format.Count(len(site.Resources), "resource"))
	}
	if bad {
		return exitError{exitUsage, nil}
	}
	return nil
}
