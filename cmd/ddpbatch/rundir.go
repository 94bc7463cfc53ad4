package main

import (
	"fmt"
	"path/filepath"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/jobfile"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/runs"
	"github.com/ddpbatch/ddpbatch/jobs/submit"
)

// runDir returns the run directory of a job: the directory in --run-dir, or the default; see
// [runs.Store.DirFor]. Base is the directory of the job file.
func (p *program) runDir(flag string, job *jobs.Job, base string) rundir.Dir {
	if flag != "" {
		return rundir.Dir{Path: p.abs(flag)}
	}
	return p.runStore().DirFor(job, base)
}

// checkRunDir returns the run directory of the job in f, like [program.runDir]. It returns an error if
// the job cannot resume in it, and warns if others can replace it or if it is a run outside of the
// default directory.
func (p *program) checkRunDir(flag string, f *jobfile.File) (rundir.Dir, error) {
	dir := p.runDir(flag, f.Job, f.Base)
	here := p.abs(filepath.Join(runs.DefaultDir, string(f.Job.Name)))
	if flag == "" && !runs.IsSameDir(dir.Path, here) && dir.Path != here {
		p.note("warning: using the existing run of this job file in %q instead of a new run in %q; use --run-dir to select one", dir.Path, here)
	}
	p.warnOfExposure(dir, false)
	return dir, submit.CheckResume(dir, f.Job, f.Base)
}

// exposures returns warnings about directories in which every user can replace a run
// directory. Directories that a group or another user can change are common in shared
// projects. Therefore, exposures reports only the innermost of them, and only if members is
// set and no other warning applies.
func exposures(dir rundir.Dir, members bool) (texts []string) {
	all := rundir.Exposures(dir.Path)
	text := func(e rundir.Exposure) string {
		return fmt.Sprintf("run directory %q is not protected: %s; %s", dir.Path, e, e.Hint())
	}
	for _, e := range all {
		if e.Anyone {
			texts = append(texts, text(e))
		}
	}
	if members && len(texts) == 0 && len(all) > 0 {
		texts = append(texts, text(all[len(all)-1]))
	}
	return texts
}

// warnOfExposure prints the warnings of [exposures].
func (p *program) warnOfExposure(dir rundir.Dir, members bool) {
	for _, text := range exposures(dir, members) {
		p.note("warning: %s", text)
	}
}
