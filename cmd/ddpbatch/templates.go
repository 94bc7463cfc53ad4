package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/templates/sites"
)

type templatesCmd struct {
	List  templatesListCmd  `cmd:"" help:"List the sites that there are profiles of."`
	Show  templatesShowCmd  `cmd:"" help:"Print a site's profile, to read or to start one of your own from."`
	Check templatesCheckCmd `cmd:"" help:"Check profiles of sites and tell their mistakes."`
}

type templatesListCmd struct {
	JSON bool `help:"Print the answer as JSON."`
}

func (c *templatesListCmd) Help() string {
	return `A job file names its site: site = "lumi", or the path of a profile of your own.
Profiles are looked for in the folders of $` + sitesVariable + ` (separated by colons), in
` + sitesFolder + `, and among those that come with the program.`
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
			p.note("left out: %s", p.unusable(name, err))
			continue
		}
		all = append(all, siteInfo{name, string(site.Title), string(site.Read)})
		rows = append(rows, []string{name, string(site.Title), string(site.Read)})
	}
	if c.JSON {
		return p.printJSON(all)
	}
	p.table([]string{"SITE", "IS", "READ"}, rows)
	return nil
}

// unusable explains in one line why a profile is skipped.
func (p *program) unusable(name string, err error) string {
	var spec jobs.Diagnostics
	if errors.As(err, &spec) && len(spec) > 0 {
		return fmt.Sprintf("%s: %s; see ddpbatch templates check %s", name, format.Count(len(spec), "mistake"), shellQuote(spec[0].File))
	}
	return fmt.Sprintf("%s: %v", name, err)
}

type templatesShowCmd struct {
	Site string `arg:"" help:"A site's name, or the path of a profile."`
}

func (c *templatesShowCmd) Run(_ context.Context, p *program) error {
	site, err := p.findSite(c.Site)
	if err != nil {
		return err
	}
	_, err = p.Stdout.Write(site.Source())
	return err
}

func (p *program) findSite(name string) (*sites.Profile, error) {
	finder := p.finder()
	site, err := finder.Find(name, p.Dir)
	if errors.Is(err, sites.ErrUnknown) {
		return nil, exitError{exitUsage, hints.Add(fmt.Errorf("there is no profile of site %q", name), "known sites: "+listed(finder.Names()))}
	}
	if err != nil {
		return nil, exitError{exitUsage, err}
	}
	return site, nil
}

type templatesCheckCmd struct {
	Files []string `arg:"" name:"file" help:"Profiles."`
}

func (c *templatesCheckCmd) Run(_ context.Context, p *program) error {
	bad := false
	for _, path := range c.Files {
		src, err := readText(p.abs(path))
		if err != nil {
			return exitError{exitUsage, err}
		}
		site, err := sites.Parse(path, path, src)
		if err != nil {
			bad = true
			report(p.Stderr, err, "")
			continue
		}
		p.printf("%s: good: %s, %s\n", path, site.Title, format.Count(len(site.Resources), "resource"))
	}
	if bad {
		return exitError{exitUsage, nil}
	}
	return nil
}
