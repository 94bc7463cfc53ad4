package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/templates/sites"
)

// jobFile is a job file that was read and found good.
type jobFile struct {
	job  *jobs.Job // with what its site fills in
	site *sites.Profile
	base string // its folder, where relative paths start
	spec []byte // a job file that says what job does

	doubts jobs.Diagnostics // warnings: what is probably not meant
}

// sitesFolder is where a centre keeps its own profiles for all users.
const sitesFolder = "/etc/ddpbatch"

// sitesVariable names more folders of profiles, separated by colons.
const sitesVariable = "DDPBATCH_SITES"

// finder looks for profiles where the user and the centre keep them.
func (p *program) finder() sites.Finder {
	folders, _ := p.lookup(sitesVariable)
	var f sites.Finder
	for _, dir := range append(filepath.SplitList(folders), sitesFolder) {
		if dir != "" {
			f.Dirs = append(f.Dirs, p.abs(dir))
		}
	}
	return f
}

// load reads a job file and tells every mistake: those of the spec, or else files
// that are missing and what its site does not take. Each of set is "key=value",
// which stands over the file.
func (p *program) load(path string, set ...string) (*jobFile, error) {
	var overrides []jobs.Override
	for _, s := range set {
		o, err := jobs.ParseOverride(s)
		if err != nil {
			return nil, err
		}
		overrides = append(overrides, o)
	}
	// Parsed from the bytes that are kept: what is checked is what is sent.
	src, err := jobs.Read(path)
	if err != nil {
		return nil, exitError{exitUsage, err}
	}
	f := &jobFile{base: filepath.Dir(p.abs(path))}
	if !filepath.IsAbs(f.base) {
		return nil, usage(fmt.Sprintf("%q is a relative path", path))
	}
	if f.job, err = jobs.Parse(path, src, overrides...); err != nil {
		return nil, err
	}
	if f.spec, err = f.job.Source(); err != nil {
		return nil, err
	}
	if f.site, err = p.siteOf(f.job, f.base); err != nil {
		return nil, err
	}
	err = f.check()
	f.doubts = append(f.doubts, writersDoubts(path)...)
	return f, err
}

// readJob reads a job file that the user names, which may be a pipe.
func readJob(path string) (*jobs.Job, error) {
	src, err := jobs.Read(path)
	if err != nil {
		return nil, err
	}
	return jobs.Parse(path, src)
}

// siteOf finds the profile of the job's site.
func (p *program) siteOf(job *jobs.Job, base string) (*sites.Profile, error) {
	finder := p.finder()
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
		d.Message = "there is no profile of site " + quoted(job.Site)
		d.Allowed = "known sites: " + strings.Join(names, ", ")
		d.Suggestion = jobs.Nearest(job.Site, names)
		return nil, jobs.Diagnostics{d}
	}
	d := job.At("site")
	d.Message, d.Allowed = err.Error(), hints.Of(err)
	return nil, jobs.Diagnostics{d}
}

// all are the jobs of the file: one, or the elements of a sweep.
func (f *jobFile) all() []*jobs.Job {
	if f.job.Sweep == nil {
		return []*jobs.Job{f.job}
	}
	var all []*jobs.Job
	for _, e := range f.job.Sweep.Elements {
		all = append(all, e.Job)
	}
	return all
}

// check lets the site fill in what the job leaves to it, and finds what the site
// will not take and files that are missing.
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
				// One file that all elements need is told once.
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
	if found, f.doubts = f.judge(); len(found) > 0 {
		return found
	}
	return nil
}
