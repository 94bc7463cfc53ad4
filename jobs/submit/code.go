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

// code finds out which state of the user's program is submitted, and keeps a copy
// of it where the job asks for one.
func (a *submission) code(ctx context.Context, id string) (*rundir.Code, error) {
	c := a.req.Job.Command
	if c == nil {
		return nil, nil
	}
	folder := string(c.Workdir)
	if !filepath.IsAbs(folder) {
		folder = filepath.Join(a.req.Base, folder)
	}
	if !c.Snapshot {
		return provenance(ctx, folder, a.req.Environ, runFolders(a.dir, folder), a.Say), nil
	}
	dst := a.dir.Code(id)
	if err := os.MkdirAll(filepath.Dir(dst), 0o700); err != nil {
		return nil, fmt.Errorf("keep a snapshot of the code: %w", err)
	}
	m, err := snapshot.Take(ctx, folder, dst, snapshot.Options{Environ: a.req.Environ, Exclude: runFolders(a.dir, folder)})
	if err != nil {
		return nil, err
	}
	for _, link := range m.Outside {
		a.Say(fmt.Sprintf("WARNING: %s leads out of the snapshot: what is there when the job runs counts", link))
	}
	code := codeOf(folder, m.Git)
	code.Snapshot = dst
	code.SHA256, code.Files, code.Bytes = m.SHA256, m.Files, m.Bytes
	return code, nil
}

// CodeHere is the state of the user's program of a job that was not submitted; nil for
// the built-in trainer. The job's paths are resolved.
func CodeHere(ctx context.Context, job *jobs.Job, dir rundir.Dir, environ []string, say func(string)) *rundir.Code {
	if job.Command == nil {
		return nil
	}
	folder := string(job.Command.Workdir)
	return provenance(ctx, folder, environ, runFolders(dir, folder), say)
}

// provenance is what git tells of a folder. It is for the record only: that git fails
// is said, and no more.
func provenance(ctx context.Context, folder string, environ, exclude []string, say func(string)) *rundir.Code {
	git, err := snapshot.Provenance(ctx, folder, environ, exclude...)
	if err != nil {
		say(fmt.Sprintf("WARNING: %v", err))
	}
	return codeOf(folder, git)
}

func codeOf(folder string, git snapshot.Git) *rundir.Code {
	return &rundir.Code{Folder: folder, Commit: git.Commit, Branch: git.Branch, Remote: git.Remote, Dirty: git.Dirty}
}

// runFolders are the folders of runs that must not become part of the snapshot:
// this one, those beside it, and those in the code's folder and the folders of it.
// Where a folder holds nothing but runs, it is that one.
func runFolders(own rundir.Dir, folder string) []string {
	exclude := []string{own.Path}
	parents := []string{folder, filepath.Dir(own.Path)}
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
			if _, err := rundir.Open(dir.Path); err == nil || dir.Path == own.Path {
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
