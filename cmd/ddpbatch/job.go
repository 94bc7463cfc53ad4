package main

import (
	"errors"
	"path/filepath"
	"slices"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/templates"
)

// jobFile is a job file that was read and found good.
type jobFile struct {
	job  *jobs.Job
	base string // its folder, where relative paths start
	spec []byte // its bytes
}

// load reads a job file and tells every mistake: those of the spec, or else
// files that are missing and a site without a template.
func (p *program) load(path string) (*jobFile, error) {
	// Parsed from the bytes that are kept: what is checked is what is sent.
	spec, err := jobs.Read(path)
	if err != nil {
		return nil, exitError{exitUsage, err}
	}
	job, err := jobs.Parse(path, spec)
	if err != nil {
		return nil, err
	}
	f := &jobFile{job: job, base: filepath.Dir(p.abs(path)), spec: spec}
	return f, f.check()
}

func (f *jobFile) check() error {
	var found jobs.Diagnostics
	if sites := templates.Names(); !slices.Contains(sites, f.job.Site) {
		d := f.job.At("site")
		d.Message = "there is no template for site " + quoted(f.job.Site)
		d.Allowed = "known sites: " + listed(sites)
		found = append(found, d)
	}
	var missing jobs.Diagnostics
	if err := f.job.CheckFiles(f.base); errors.As(err, &missing) {
		found = append(found, missing...)
	} else if err != nil {
		return err
	}
	if len(found) > 0 {
		return found
	}
	return nil
}
