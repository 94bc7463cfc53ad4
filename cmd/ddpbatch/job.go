package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/jobfile"
	"github.com/ddpbatch/ddpbatch/templates/sites"
)

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

// load parses and checks the job file that the user named; see [jobfile.Loader]. The file may not be
// another user's file in Slurm's /tmp; see checkFallbackDir.
func (p *program) load(path string, set ...string) (*jobfile.File, error) {
	if err := p.checkFallbackDir(true, path); err != nil {
		return nil, err
	}
	return p.loader().Load(path, filepath.Dir(p.abs(path)), set...)
}

func (p *program) loader() jobfile.Loader {
	binary, _ := os.Executable() // if it is unknown, there is no warning about it
	return jobfile.Loader{Sites: p.finder(), Program: binary}
}

// readJob parses a job file that the user named. The file can be a pipe.
func readJob(path string) (*jobs.Job, error) {
	src, err := jobs.Read(path)
	if err != nil {
		return nil, err
	}
	return jobs.Parse(path, src)
}

// printWarnings prints the warnings about a job file. If local is set, it omits warnings about
// keys that only Slurm uses.
func (p *program) printWarnings(f *jobfile.File, local bool) {
	for _, d := range f.Warnings {
		if local && strings.HasPrefix(d.Key, "slurm.") {
			continue
		}
		p.note("warning: %s%s", formatLocation(d), warningText(d))
	}
}

// formatLocation formats the location of a diagnostic, such as "job.toml:3:8: ".
func formatLocation(d jobs.Diagnostic) string {
	switch {
	case d.File == "":
		return ""
	case d.Line == 0:
		return d.File + ": "
	}
	return fmt.Sprintf("%s:%d:%d: ", d.File, d.Line, d.Column)
}

// warningText formats a diagnostic and its fix in one line.
func warningText(d jobs.Diagnostic) string {
	if d.Allowed == "" {
		return d.Message
	}
	return d.Message + "; " + d.Allowed
}
