package submit

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
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
// this one, and those beside it. Where nothing else is beside it, it is the folder
// that holds them.
func (a *submission) runFolders(folder string) []string {
	parent := filepath.Dir(a.dir.Path)
	if !strings.HasPrefix(a.dir.Path, folder+"/") {
		return nil
	}
	beside, err := os.ReadDir(parent)
	if err != nil {
		return []string{a.dir.Path}
	}
	exclude := []string{a.dir.Path}
	for _, e := range beside {
		dir := rundir.Dir{Path: filepath.Join(parent, e.Name())}
		if dir == a.dir {
			continue
		}
		if _, err := rundir.Open(dir.Path); err == nil {
			exclude = append(exclude, dir.Path)
		}
	}
	if len(exclude) == len(beside) && parent != folder {
		return []string{parent}
	}
	return exclude
}
