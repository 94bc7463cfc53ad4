package snapshot

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// leftOut are the names of files and folders that are copied only if git tracks
// them: version control's own, and what tools can make again.
var leftOut = map[string]bool{
	".git": true, ".hg": true, ".svn": true, ".jj": true,
	"__pycache__": true, ".cache": true, ".mypy_cache": true, ".pytest_cache": true, ".ruff_cache": true,
	".hypothesis": true, ".ipynb_checkpoints": true, ".tox": true, ".nox": true,
}

// entry is a file that is copied.
type entry struct {
	path string      // relative to the folder
	info fs.FileInfo // of Lstat
	link string      // where a symbolic link leads in the copy
	sum  string      // SHA-256 of the content, or of where it leads
}

// listing collects what to copy from a folder.
type listing struct {
	root     *os.Root
	base     string   // the folder, with no link in its path
	exclude  []string // relative to base
	maxFiles int
	maxBytes int64
	entries  map[string]*entry
	folders  map[string]bool // whether the path is a folder, no link on the way
	unseen   []string        // folders that git tracks as one thing, and has not checked out
}

// excluded turns paths into ones relative to base; those that are elsewhere do
// not matter.
func excluded(base string, paths []string) ([]string, error) {
	var inside []string
	for _, path := range paths {
		if !filepath.IsAbs(path) {
			path = filepath.Join(base, path)
		}
		if resolved, err := filepath.EvalSymlinks(path); err == nil {
			path = resolved
		}
		down, err := filepath.Rel(base, path)
		if err != nil {
			return nil, err
		}
		up, err := filepath.Rel(path, base)
		switch {
		case err != nil:
			return nil, err
		case filepath.IsLocal(up):
			return nil, hints.Errorf("keep the code in a folder of its own, apart from the runs", "all of it is in %q, which is left out", path)
		case filepath.IsLocal(down):
			inside = append(inside, down)
		}
	}
	return inside, nil
}

// skips says whether a path is not to be copied, or not to be entered.
func (l *listing) skips(path string, tracked bool) bool {
	for name := range strings.SplitSeq(path, "/") {
		if strings.HasPrefix(name, ownPrefix) || !tracked && leftOut[name] {
			return true
		}
	}
	return slices.ContainsFunc(l.exclude, func(folder string) bool {
		return path == folder || strings.HasPrefix(path, folder+"/")
	})
}

// add takes a file in.
func (l *listing) add(path string, info fs.FileInfo) error {
	if what := special(info.Mode()); what != "" {
		return hints.Errorf("remove it, or move it out of the folder", "%q is a %s, which cannot be kept", path, what)
	}
	l.entries[path] = &entry{path: path, info: info}
	if len(l.entries) > l.maxFiles {
		return l.crowded()
	}
	return nil
}

func special(mode fs.FileMode) string {
	switch {
	case mode.IsRegular(), mode&fs.ModeSymlink != 0:
		return ""
	case mode&fs.ModeNamedPipe != 0:
		return "FIFO"
	case mode&fs.ModeSocket != 0:
		return "socket"
	case mode&fs.ModeDevice != 0:
		return "device"
	}
	return "file of an unknown kind"
}

// walk lists all files below a folder.
func (l *listing) walk(ctx context.Context, folder string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	entries, err := l.read(folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(folder, e.Name())
		if l.skips(path, false) {
			continue
		}
		info, err := l.root.Lstat(path)
		switch {
		case gone(err):
			continue
		case err != nil:
			return err
		case info.IsDir():
			err = l.walk(ctx, path)
		default:
			err = l.add(path, info)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *listing) read(folder string) ([]fs.DirEntry, error) {
	f, err := l.root.Open(folder)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ReadDir(-1)
}

// gone says whether there is nothing at a path.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// sorted is the entries in the order of their paths.
func (l *listing) sorted() []*entry {
	var all []*entry
	for _, e := range l.entries {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *entry) int { return strings.Compare(a.path, b.path) })
	return all
}
