package submit

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

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
		git, err := snapshot.Provenance(ctx, folder, a.req.Environ, a.runFolders(folder)...)
		if err != nil {
			// Only for the record.
			a.Say(fmt.Sprintf("WARNING: %v", err))
		}
		return codeOf(folder, git), nil
	}
	dst := a.dir.Code(id)
	if err := os.MkdirAll(filepath.Dir(dst), 0o700); err != nil {
		return nil, fmt.Errorf("keep a snapshot of the code: %w", err)
	}
	m, err := snapshot.Take(ctx, folder, dst, snapshot.Options{Environ: a.req.Environ, Exclude: a.runFolders(folder)})
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

func codeOf(folder string, git snapshot.Git) *rundir.Code {
	return &rundir.Code{Folder: folder, Commit: git.Commit, Branch: git.Branch, Remote: git.Remote, Dirty: git.Dirty}
}

// runFolders are the folders of runs that must not become part of the snapshot:
// this one, those beside it, and those in the code's folder and the folders of it.
// Where a folder holds nothing but runs, it is that one.
func (a *submission) runFolders(folder string) []string {
	exclude := []string{a.dir.Path}
	parents := []string{folder, filepath.Dir(a.dir.Path)}
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
			if _, err := rundir.Open(dir.Path); err == nil || dir == a.dir {
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
