// Package jobfile loads the job file that a command names.
//
// [Loader.Load] parses the file, applies the defaults of its site, and checks the job against the
// rules of the site, the files on this machine, and the data set. It returns all errors of a stage
// together, each with file, line, and column, and warnings about values that are probably
// unintended. It does not query Slurm, print, or read the run directory: package submit checks
// whether a job can resume.
package jobfile

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/exitcode"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/templates/sites"
)

// A File is a job file that was parsed and checked.
type File struct {
	Job  *jobs.Job // with the defaults of its site
	Site *sites.Profile
	Base string // directory of the job file; relative paths start here
	Spec []byte // equivalent job file, with all overrides applied

	Warnings jobs.Diagnostics // warnings about values that are probably unintended
}

// A Loader loads job files.
type Loader struct {
	Sites sites.Finder
	// Program is the path of this program. Load warns if every user can change it. It may be empty.
	Program string
}

// Load reads, parses, and checks the job file at path. Base is the absolute path of its directory.
// Each entry of set is "key=value" and overrides a key of the file. The error lists all invalid
// keys. If all keys are valid, it lists missing files and values that the site rejects; the File
// is then not nil. Load counts the samples of the data set, which cannot be canceled.
func (l Loader) Load(path, base string, set ...string) (*File, error) {
	// Parse the same bytes that submit sends later, so that the checks apply to them.
	src, err := jobs.Read(path)
	if err != nil {
		return nil, exitcode.Add(exitcode.Usage, err)
	}
	f, err := l.Parse(path, src, base, set...)
	if f != nil {
		f.Warnings = append(f.Warnings, writerWarnings(path, "job file")...)
		if l.Program != "" {
			f.Warnings = append(f.Warnings, writerWarnings(l.Program, "program")...)
		}
	}
	return f, err
}

// Parse parses and checks the bytes of the job file at path like [Loader.Load]. The file does not have to
// exist.
func (l Loader) Parse(path string, src []byte, base string, set ...string) (*File, error) {
	var overrides []jobs.Override
	for _, s := range set {
		o, err := jobs.ParseOverride(s)
		if err != nil {
			return nil, err
		}
		overrides = append(overrides, o)
	}
	if !filepath.IsAbs(base) {
		return nil, exitcode.Add(exitcode.Usage, fmt.Errorf("the directory %q of %q is a relative path", base, path))
	}
	f := &File{Base: base}
	var err error
	if f.Job, err = jobs.Parse(path, src, overrides...); err != nil {
		return nil, err
	}
	if f.Spec, err = f.Job.Source(); err != nil {
		return nil, err
	}
	if f.Site, err = l.site(f.Job, filepath.Join(base, filepath.Base(path)), base); err != nil {
		return nil, err
	}
	return f, f.check()
}

// site returns the profile of the site of the job in a job file.
func (l Loader) site(job *jobs.Job, file, base string) (*sites.Profile, error) {
	finder := l.Sites
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

// All returns the job, or the jobs of all trials for a sweep.
func (f *File) All() []*jobs.Job {
	if f.Job.Sweep == nil {
		return []*jobs.Job{f.Job}
	}
	var all []*jobs.Job
	for _, e := range f.Job.Sweep.Trials {
		all = append(all, e.Job)
	}
	return all
}

// check applies the defaults of the site. Then it checks the job against the rules of the site
// and checks that its files exist.
func (f *File) check() error {
	f.Site.Apply(f.Job)
	errs := diagnosticSet{what: "errors"}
	errs.add(f.Site.Lint(f.Job))
	for _, job := range f.All() {
		if job != f.Job {
			f.Site.Apply(job)
		}
		if errs.isFull() {
			continue
		}
		var missing jobs.Diagnostics
		if err := job.CheckFiles(f.Base); errors.As(err, &missing) {
			errs.add(missing) // a file that all trials need only once
		} else if err != nil {
			return err
		}
	}
	if found := errs.list(); len(found) > 0 {
		return found
	}
	found, warnings := f.checkValues()
	if f.Warnings = warnings; len(found) > 0 {
		return found
	}
	return nil
}
