package snapshot

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
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
			return nil, hints.Errorf("move the code to a separate directory, outside of the runs", "the whole directory is in %q, which is excluded", path)
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
	return slices.ContainsFunc(l.exclude, func(dir string) bool {
		return path == dir || strings.HasPrefix(path, dir+"/")
	})
}

// add adds a file. It returns an error for special files and for too many files.
func (l *listing) add(path string, info fs.FileInfo) error {
	if mode := info.Mode(); !mode.IsRegular() && mode&fs.ModeSymlink == 0 {
		return hints.Errorf("remove it, or move it out of the directory", "%q is %s, which a snapshot cannot contain", path, safefile.Kind(mode))
	}
	l.entries[path] = &entry{path: path, info: info}
	if len(l.entries) > l.maxFiles {
		return l.tooManyFilesError()
	}
	return nil
}

// addDir adds all files below a directory.
func (l *listing) addDir(ctx context.Context, dir string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	entries, err := safefile.ReadDirIn(l.root, dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
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

// notExists reports whether err means that the path does not exist.
func notExists(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// sorted returns the entries in the order of their paths.
func (l *listing) sorted() []*entry {
	return slices.SortedFunc(maps.Values(l.entries), func(a, b *entry) int { return strings.Compare(a.path, b.path) })
}

// addWorkTree adds the files of a git work tree below dir, which is relative to base, and the
// files of nested work trees.
func (l *listing) addWorkTree(ctx context.Context, g git, dir string) error {
	for _, list := range []struct {
		tracked bool
		args    []string
	}{
		{true, []string{"ls-files", "-z", "--cached"}},
		{false, []string{"ls-files", "-z", "--others", "--exclude-standard"}},
	} {
		out, err := g.run(ctx, filepath.Join(l.base, dir), list.args...)
		if errors.Is(err, errOutputTooLarge) {
			return l.tooManyFilesError()
		}
		if err != nil {
			return err
		}
		for name := range bytes.SplitSeq(out, []byte{0}) {
			if path := filepath.Join(dir, string(name)); path != dir {
				if err := l.addFound(ctx, g, path, list.tracked); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// addFound adds a path that git printed: a file or a nested work tree.
func (l *listing) addFound(ctx context.Context, g git, path string, tracked bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	// A path behind a symbolic link is not part of this work tree, even if the index contains
	// it.
	if l.isSkipped(path, tracked) || !l.isRealDir(filepath.Dir(path)) {
		return nil
	}
	info, err := l.root.Lstat(path)
	switch {
	case notExists(err):
		return nil // deleted, or outside a sparse checkout
	case err != nil:
		return err
	case !info.IsDir():
		return l.add(path, info)
	}
	if _, err := l.root.Lstat(filepath.Join(path, ".git")); err == nil {
		return l.addWorkTree(ctx, g, path)
	}
	l.emptySubmodules = append(l.emptySubmodules, path)
	return nil
}

// isRealDir reports whether a path is a directory that is not behind a symbolic link.
func (l *listing) isRealDir(path string) bool {
	if path == "." {
		return true
	}
	known, ok := l.realDirs[path]
	if !ok {
		info, err := l.root.Lstat(path)
		known = err == nil && info.IsDir() && l.isRealDir(filepath.Dir(path))
		l.realDirs[path] = known
	}
	return known
}

// checkSubmodules returns an error if a submodule contains files but is not a work tree. git
// ignores these files, so the copy would not contain them. An empty directory means that the
// submodule was never checked out.
func (l *listing) checkSubmodules() error {
next:
	for _, dir := range l.emptySubmodules {
		for path := range l.entries {
			if strings.HasPrefix(path, dir+"/") {
				continue next // a file that became a directory
			}
		}
		entries, err := safefile.ReadDirIn(l.root, dir)
		if err != nil {
			return err
		}
		if len(entries) > 0 {
			return hints.Errorf("run `git submodule update --init`, or remove its files",
				"submodule %q has files but is not checked out, so git ignores them", dir)
		}
	}
	return nil
}

const tooLarge = "move data, checkpoints, and environments out of the directory, or add them to .gitignore"

// maxNamed is the maximum number of files or directories in an error.
const maxNamed = 3

// tooManyFilesError returns the error for too many files. It names the directories that contain
// most.
func (l *listing) tooManyFilesError() error {
	count := map[string]int64{}
	for path := range l.entries {
		top, _, nested := strings.Cut(path, "/")
		if nested {
			count[top+"/"]++
		}
	}
	return hints.Errorf(tooLarge, "more than %d files%s", l.maxFiles,
		listLargest(count, "; most of those found are in ", func(n int64) string { return fmt.Sprint(n) }))
}

// checkSize returns an error if the files are too large in total. The error names the largest
// files.
func (l *listing) checkSize() error {
	size := map[string]int64{}
	var total int64
	for path, e := range l.entries {
		if e.info.Mode().IsRegular() {
			size[path] = e.info.Size()
			total += e.info.Size()
		}
	}
	if total <= l.maxBytes {
		return nil
	}
	return hints.Errorf(tooLarge, "%s of files, more than the limit of %s%s", format.Bytes(total), format.Bytes(l.maxBytes),
		listLargest(size, "; the largest files are ", format.Bytes[int64]))
}

// listLargest returns the names with the largest numbers as text.
func listLargest(numbers map[string]int64, intro string, show func(int64) string) string {
	names := slices.SortedFunc(maps.Keys(numbers), func(a, b string) int {
		return cmp.Or(cmp.Compare(numbers[b], numbers[a]), strings.Compare(a, b))
	})
	if len(names) == 0 {
		return ""
	}
	var parts []string
	for _, name := range names[:min(maxNamed, len(names))] {
		parts = append(parts, fmt.Sprintf("%q (%s)", name, show(numbers[name])))
	}
	return intro + strings.Join(parts, ", ")
}
