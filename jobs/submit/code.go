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

// recordCode returns the state of the user's program and, if the job requests it, stores a snapshot.
// It returns nil for the built-in trainer. id is the ID of the submission.
func (a *submission) recordCode(ctx context.Context, id string) (*rundir.Code, error) {
	c := a.req.Job.Command
	if c == nil {
		return nil, nil
	}
	folder := string(c.Workdir)
	if !filepath.IsAbs(folder) {
		folder = filepath.Join(a.req.Base, folder)
	}
	if !c.Snapshot {
		return provenance(ctx, folder, a.req.Environ, listRunDirs(a.dir, folder), a.Say), nil
	}
	dst := a.dir.Code(id)
	if err := os.MkdirAll(filepath.Dir(dst), 0o700); err != nil {
		return nil, fmt.Errorf("keep a snapshot of the code: %w", err)
	}
	m, err := snapshot.Take(ctx, folder, dst, snapshot.Options{Environ: a.req.Environ, Exclude: listRunDirs(a.dir, folder)})
	if err != nil {
		return nil, err
	}
	for _, link := range m.Outside {
		a.Say(fmt.Sprintf("WARNING: %s leads out of the snapshot: what is there when the job runs counts", link))
	}
	code := newCode(folder, m.Git)
	code.Snapshot = dst
	code.SHA256, code.Files, code.Bytes = m.SHA256, m.Files, m.Bytes
	return code, nil
}

// DescribeCode returns the state of the user's program for a job that was not submitted, or nil
// for the built-in trainer. The paths in job must be resolved.
func DescribeCode(ctx context.Context, job *jobs.Job, dir rundir.Dir, environ []string, say func(string)) *rundir.Code {
	if job.Command == nil {
		return nil
	}
	folder := string(job.Command.Workdir)
	return provenance(ctx, folder, environ, listRunDirs(dir, folder), say)
}

// provenance returns git's information about a directory. The information is only for the
// record, so a failure of git causes only a warning.
func provenance(ctx context.Context, folder string, environ, exclude []string, say func(string)) *rundir.Code {
	git, err := snapshot.Provenance(ctx, folder, environ, exclude...)
	if err != nil {
		say(fmt.Sprintf("WARNING: %v", err))
	}
	return newCode(folder, git)
}

func newCode(folder string, git snapshot.Git) *rundir.Code {
	return &rundir.Code{Folder: folder, Commit: git.Commit, Branch: git.Branch, Remote: git.Remote, Dirty: git.Dirty}
}

// listRunDirs returns the run directories that a snapshot of folder must not contain: the job's
// own run directory, its siblings, and the runs in folder and its direct subdirectories. If a
// subdirectory contains only runs, the result has this subdirectory instead.
func listRunDirs(runDir rundir.Dir, folder string) []string {
	exclude := []string{runDir.Path}
	parents := []string{folder, filepath.Dir(runDir.Path)}
	if entries, err := os.ReadDir(folder); err == nil {
		for _, e := range entries {
			if e.IsDir() && filepath.Join(folder, e.Name()) != parents[1] {
				parents = append(parents, filepath.Join(folder, e.Name()))
			}
		}
	}
	for _, parent := range parents {
		entries, err := os.ReadDir(parent)
		if err != nil || !strings.HasPrefix(parent+"/", folder+"/") {
			continue
		}
		var runs []string
		for _, e := range entries {
			dir := rundir.Dir{Path: filepath.Join(parent, e.Name())}
			if _, err := rundir.Open(dir.Path); err == nil || dir.Path == runDir.Path {
				runs = append(runs, dir.Path)
			}
		}
		if len(runs) > 0 && len(runs) == len(entries) && parent != folder {
			runs = []string{parent}
		}
		exclude = append(exclude, runs...)
	}
	return slices.DeleteFunc(exclude, func(path string) bool { return !strings.HasPrefix(path, folder+"/") })
}
