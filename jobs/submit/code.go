package submit

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/snapshot"
)

// recordCode returns the state of the user's program and, if the job requests it, stores a
// snapshot. It returns nil for the built-in trainer. id is the ID of the submission.
func (a *submission) recordCode(ctx context.Context, id string) (*rundir.Code, error) {
	c := a.req.Job.Command
	if c == nil {
		return nil, nil
	}
	codeDir := string(c.Workdir)
	if !filepath.IsAbs(codeDir) {
		codeDir = filepath.Join(a.req.Base, codeDir)
	}
	if !c.Snapshot {
		return provenance(ctx, codeDir, a.req.Environ, listRunDirs(a.dir, codeDir), a.Say), nil
	}
	parent, err := a.dir.OpenCode()
	if err != nil {
		return nil, fmt.Errorf("create snapshot directory: %w", err)
	}
	defer parent.Close()
	m, err := snapshot.Take(ctx, codeDir, parent, id, snapshot.Options{Environ: a.req.Environ, Exclude: listRunDirs(a.dir, codeDir)})
	if err != nil {
		return nil, err
	}
	for _, link := range m.Outside {
		a.Say(fmt.Sprintf("warning: %s leads out of the snapshot; the job uses its target as it is at run time", link))
	}
	code := newCode(codeDir, m.Git)
	code.Snapshot = a.dir.Code(id)
	code.SHA256, code.Files, code.Bytes = m.SHA256, m.Files, m.Bytes
	return code, nil
}

// DescribeCode returns the state of the user's program for a job that was not submitted, or nil
// for the built-in trainer. The paths in job must be resolved.
func DescribeCode(ctx context.Context, job *jobs.Job, dir rundir.Dir, environ []string, say func(string)) *rundir.Code {
	if job.Command == nil {
		return nil
	}
	codeDir := string(job.Command.Workdir)
	return provenance(ctx, codeDir, environ, listRunDirs(dir, codeDir), say)
}

// provenance returns git's information about a directory. The information is only for the
// record, so a failure of git causes only a warning.
func provenance(ctx context.Context, codeDir string, environ, exclude []string, say func(string)) *rundir.Code {
	git, err := snapshot.Provenance(ctx, codeDir, environ, exclude...)
	if err != nil {
		say(fmt.Sprintf("warning: %v", err))
	}
	return newCode(codeDir, git)
}

func newCode(codeDir string, git snapshot.Git) *rundir.Code {
	return &rundir.Code{Folder: codeDir, Commit: git.Commit, Branch: git.Branch, Remote: git.Remote, Dirty: git.Dirty}
}

// listRunDirs returns the run directories that a snapshot of codeDir must not contain: the job's
// own run directory, its siblings, and the runs in codeDir and its direct subdirectories. If a
// subdirectory contains only runs, the result has this subdirectory instead.
func listRunDirs(runDir rundir.Dir, codeDir string) []string {
	exclude := []string{runDir.Path}
	parents := []string{codeDir, filepath.Dir(runDir.Path)}
	if entries, err := os.ReadDir(codeDir); err == nil {
		for _, e := range entries {
			if e.IsDir() && filepath.Join(codeDir, e.Name()) != parents[1] {
				parents = append(parents, filepath.Join(codeDir, e.Name()))
			}
		}
	}
	for _, parent := range parents {
		entries, err := os.ReadDir(parent)
		if err != nil || !strings.HasPrefix(parent+"/", codeDir+"/") {
			continue
		}
		var runs []string
		for _, e := range entries {
			dir := rundir.Dir{Path: filepath.Join(parent, e.Name())}
			if _, err := rundir.Open(dir.Path); err == nil || dir.Path == runDir.Path {
				runs = append(runs, dir.Path)
			}
		}
		if len(runs) > 0 && len(runs) == len(entries) && parent != codeDir {
			runs = []string{parent}
		}
		exclude = append(exclude, runs...)
	}
	return slices.DeleteFunc(exclude, func(path string) bool { return !strings.HasPrefix(path, codeDir+"/") })
}
