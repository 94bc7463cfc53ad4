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

// ignoredNames are names of files and directories that are copied only if git tracks them: data of
// version control systems and caches that tools can rebuild.
var ignoredNames = map[string]bool{
	".git": true, ".hg": true, ".svn": true, ".jj": true,
	"__pycache__": true, ".cache": true, ".mypy_cache": true, ".pytest_cache": true, ".ruff_cache": true,
	".hypothesis": true, ".ipynb_checkpoints": true, ".tox": true, ".nox": true,
}

// An entry is a file to copy.
type entry struct {
	path string      // relative to the source directory
	info fs.FileInfo // from Lstat
	link string      // target of a symbolic link in the copy
	sum  string      // SHA-256 digest of the content or the link target
}

// A listing collects the files to copy from a directory.
type listing struct {
	root            *os.Root
	base            string   // source directory, without symbolic links in its path
	exclude         []string // relative to base
	maxFiles        int
	maxBytes        int64
	entries         map[string]*entry
	realDirs        map[string]bool // whether a path is a directory that is not behind a symbolic link
	emptySubmodules []string        // submodules that are not checked out
}

// relativeExcludes converts paths to paths relative to base. It omits paths outside base.
func relativeExcludes(base string, paths []string) ([]string, error) {
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

// isSkipped reports whether a path must not be copied or entered.
func (l *listing) isSkipped(path string, tracked bool) bool {
	for name := range strings.SplitSeq(path, "/") {
		if strings.HasPrefix(name, ownPrefix) || !tracked && ignoredNames[name] {
			return true
		}
	}
	return slices.ContainsFunc(l.exclude, func(folder string) bool {
		return path == folder || strings.HasPrefix(path, folder+"/")
	})
}

// add adds a file. It returns an error for special files and for too many files.
func (l *listing) add(path string, info fs.FileInfo) error {
	if what := special(info.Mode()); what != "" {
		return hints.Errorf("remove it, or move it out of the folder", "%q is a %s, which cannot be kept", path, what)
	}
	l.entries[path] = &entry{path: path, info: info}
	if len(l.entries) > l.maxFiles {
		return l.tooManyFilesError()
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

// addDir adds all files below a directory.
func (l *listing) addDir(ctx context.Context, folder string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	entries, err := l.readDir(folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(folder, e.Name())
		if l.isSkipped(path, false) {
			continue
		}
		info, err := l.root.Lstat(path)
		switch {
		case notExists(err):
			continue
		case err != nil:
			return err
		case info.IsDir():
			err = l.addDir(ctx, path)
		default:
			err = l.add(path, info)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *listing) readDir(folder string) ([]fs.DirEntry, error) {
	f, err := l.root.Open(folder)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ReadDir(-1)
}

// notExists reports whether err means that the path does not exist.
func notExists(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// sorted returns the entries in the order of their paths.
func (l *listing) sorted() []*entry {
	var all []*entry
	for _, e := range l.entries {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *entry) int { return strings.Compare(a.path, b.path) })
	return all
}
