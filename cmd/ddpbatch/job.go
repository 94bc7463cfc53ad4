package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/templates/sites"
)

// A jobFile is a job file that was parsed and checked.
type jobFile struct {
	job  *jobs.Job // with the defaults of its site
	site *sites.Profile
	base string // directory of the job file; relative paths start here
	spec []byte // equivalent job file, with all overrides applied

	warnings jobs.Diagnostics // warnings about values that are probably unintended
}

// sitesDir is the directory for a center's own site profiles.
const sitesDir = "/etc/ddpbatch"

// sitesVariable names additional directories of site profiles, separated by colons.
const sitesVariable = "DDPBATCH_SITES"

// finder returns a finder for site profiles in the directories of the user and the center.
func (p *program) finder() sites.Finder {
	folders, _ := p.lookup(sitesVariable)
	var f sites.Finder
	for _, dir := range append(filepath.SplitList(folders), sitesDir) {
		if dir != "" {
			f.Dirs = append(f.Dirs, dir)
		}
	}
	return f
}

// load parses and checks a job file. Each entry of set is "key=value" and overrides a key of
// the file. The error lists all invalid keys. If all keys are valid, it lists missing files
// and values that the site rejects.
func (p *program) load(path string, set ...string) (*jobFile, error) {
	// Parse the same bytes that submit sends later, so that the checks apply to them.
	src, err := jobs.Read(path)
	if err != nil {
		return nil, exitError{exitUsage, err}
	}
	f, err := p.parse(path, src, filepath.Dir(p.abs(path)), set...)
	if f != nil {
		f.warnings = append(f.warnings, writerWarnings(path, "job file")...)
		if binary, err := os.Executable(); err == nil {
			f.warnings = append(f.warnings, writerWarnings(binary, "program")...)
		}
	}
	return f, err
}

// parse parses and checks the bytes of a job file, see load. Relative paths start at base.
func (p *program) parse(path string, src []byte, base string, set ...string) (*jobFile, error) {
	var overrides []jobs.Override
	for _, s := range set {
		o, err := jobs.ParseOverride(s)
		if err != nil {
			return nil, err
		}
		overrides = append(overrides, o)
	}
	f := &jobFile{base: base}
	if !filepath.IsAbs(f.base) {
		return nil, usage(fmt.Sprintf("%q is a relative path", path))
	}
	var err error
	if f.job, err = jobs.Parse(path, src, overrides...); err != nil {
		return nil, err
	}
	if f.spec, err = f.job.Source(); err != nil {
		return nil, err
	}
	if f.site, err = p.siteOf(f.job, p.abs(path), f.base); err != nil {
		return nil, err
	}
	return f, f.check()
}

// readJob parses a job file that the user named. The file can be a pipe.
func readJob(path string) (*jobs.Job, error) {
	src, err := jobs.Read(path)
	if err != nil {
		return nil, err
	}
	return jobs.Parse(path, src)
}

// siteOf returns the profile of the site of the job in a job file.
func (p *program) siteOf(job *jobs.Job, file, base string) (*sites.Profile, error) {
	finder := p.finder()
	finder.JobFile = file
	site, err := finder.Find(job.Site, base)
	var broken jobs.Diagnostics
	switch {
	case err == nil:
		return site, nil
	case errors.As(err, &broken):
		return nil, err
	case errors.Is(err, sites.ErrUnknown):
		names := finder.Names()
		d := job.At("site")
		d.Message = fmt.Sprintf("no profile for site %q", job.Site)
		d.Allowed = "known sites: " + strings.Join(names, ", ")
		d.Suggestion = jobs.Nearest(job.Site, names)
		return nil, jobs.Diagnostics{d}
	}
	d := job.At("site")
	d.Message, d.Allowed = err.Error(), hints.Of(err)
	return nil, jobs.Diagnostics{d}
}

// all returns the job, or the jobs of all trials for a sweep.
func (f *jobFile) all() []*jobs.Job {
	if f.job.Sweep == nil {
		return []*jobs.Job{f.job}
	}
	var all []*jobs.Job
	for _, e := range f.job.Sweep.Trials {
		all = append(all, e.Job)
	}
	return all
}

// check applies the defaults of the site. Then it checks the job against the rules of the site
// and checks that its files exist.
func (f *jobFile) check() error {
	f.site.Apply(f.job)
	found := f.site.Lint(f.job)
	seen := map[string]bool{}
	for _, job := range f.all() {
		if job != f.job {
			f.site.Apply(job)
		}
		var missing jobs.Diagnostics
		if err := job.CheckFiles(f.base); errors.As(err, &missing) {
			for _, d := range missing {
				// Report a file that all trials need only once.
				if key := fmt.Sprint(d.Line, d.Column, d.Message); !seen[key] {
					seen[key] = true
					found = append(found, d)
				}
			}
		} else if err != nil {
			return err
		}
	}
	if len(found) > 0 {
		return found
	}
	if found, f.warnings = f.checkValues(); len(found) > 0 {
		return found
	}
	return nil
}
