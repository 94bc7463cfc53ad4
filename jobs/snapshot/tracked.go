package snapshot

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// addWorkTree adds the files of a git work tree below folder, which is relative to base, and the
// files of nested work trees.
func (l *listing) addWorkTree(ctx context.Context, g git, folder string) error {
	for _, ask := range []struct {
		tracked bool
		args    []string
	}{
		{true, []string{"ls-files", "-z", "--cached"}},
		{false, []string{"ls-files", "-z", "--others", "--exclude-standard"}},
	} {
		out, err := g.run(ctx, filepath.Join(l.base, folder), ask.args...)
		if errors.Is(err, errOutputTooLarge) {
			return l.tooManyFilesError()
		}
		if err != nil {
			return err
		}
		for name := range bytes.SplitSeq(out, []byte{0}) {
			if path := filepath.Join(folder, string(name)); path != folder {
				if err := l.addFound(ctx, g, path, ask.tracked); err != nil {
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
	for _, folder := range l.emptySubmodules {
		for path := range l.entries {
			if strings.HasPrefix(path, folder+"/") {
				continue next // a file that became a directory
			}
		}
		entries, err := l.readDir(folder)
		if err != nil {
			return err
		}
		if len(entries) > 0 {
			return hints.Errorf("`git submodule update --init` it, or remove its files",
				"git does not look into %q: a submodule that has files, but was not checked out", folder)
		}
	}
	return nil
}
