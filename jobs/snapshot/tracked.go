package snapshot

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// workTree adds the files of a git work tree below folder, which is relative to base, and the
// files of nested work trees.
func (l *listing) workTree(ctx context.Context, g git, folder string) error {
	for _, ask := range []struct {
		tracked bool
		args    []string
	}{
		{true, []string{"ls-files", "-z", "--cached"}},
		{false, []string{"ls-files", "-z", "--others", "--exclude-standard"}},
	} {
		out, err := g.run(ctx, filepath.Join(l.base, folder), ask.args...)
		if errors.Is(err, errTooMuch) {
			return l.crowded()
		}
		if err != nil {
			return err
		}
		for name := range bytes.SplitSeq(out, []byte{0}) {
			if path := filepath.Join(folder, string(name)); path != folder {
				if err := l.found(ctx, g, path, ask.tracked); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// found adds a path that git printed: a file or a nested work tree.
func (l *listing) found(ctx context.Context, g git, path string, tracked bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	// A path behind a symbolic link is not part of this work tree, even if the index contains
	// it.
	if l.skips(path, tracked) || !l.isFolder(filepath.Dir(path)) {
		return nil
	}
	info, err := l.root.Lstat(path)
	switch {
	case gone(err):
		return nil // deleted, or outside a sparse checkout
	case err != nil:
		return err
	case !info.IsDir():
		return l.add(path, info)
	}
	if _, err := l.root.Lstat(filepath.Join(path, ".git")); err == nil {
		return l.workTree(ctx, g, path)
	}
	l.unseen = append(l.unseen, path)
	return nil
}

// isFolder reports whether a path is a directory that is not behind a symbolic link.
func (l *listing) isFolder(path string) bool {
	if path == "." {
		return true
	}
	known, ok := l.folders[path]
	if !ok {
		info, err := l.root.Lstat(path)
		known = err == nil && info.IsDir() && l.isFolder(filepath.Dir(path))
		l.folders[path] = known
	}
	return known
}

// checkUnseen returns an error if a submodule contains files but is not a work tree. git
// ignores these files, so the copy would not contain them. An empty directory means that the
// submodule was never checked out.
func (l *listing) checkUnseen() error {
next:
	for _, folder := range l.unseen {
		for path := range l.entries {
			if strings.HasPrefix(path, folder+"/") {
				continue next // a file that became a directory
			}
		}
		entries, err := l.read(folder)
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
