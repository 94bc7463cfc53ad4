package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// Take copies the code in src to a new directory dst with mode 0700. Both paths must be
// absolute. dst must not exist, but its parent must. dst may be inside src. Take creates dst
// atomically: it makes the copy under a temporary name next to dst and then renames it.
//
// Take returns an error if src contains no files, too many files, too much data, or a FIFO, a
// socket, or a device, or if a file changes during the copy. The error may have a hint.
func Take(ctx context.Context, src, dst string, o Options) (Manifest, error) {
	m, err := take(ctx, src, dst, o)
	if err != nil {
		return Manifest{}, fmt.Errorf("take a snapshot of %q: %w", src, err)
	}
	return m, nil
}

func take(ctx context.Context, src, dst string, o Options) (Manifest, error) {
	if !filepath.IsAbs(src) || !filepath.IsAbs(dst) {
		return Manifest{}, errors.New("a path is not absolute")
	}
	if _, err := os.Lstat(dst); !errors.Is(err, fs.ErrNotExist) {
		return Manifest{}, existsError(dst, err)
	}
	base, err := filepath.EvalSymlinks(src)
	if err != nil {
		return Manifest{}, err
	}
	root, err := os.OpenRoot(base)
	if err != nil {
		return Manifest{}, err
	}
	defer root.Close()
	l := &listing{root: root, base: base, maxFiles: o.MaxFiles, maxBytes: o.MaxBytes,
		entries: map[string]*entry{}, realDirs: map[string]bool{}}
	if l.maxFiles == 0 {
		l.maxFiles = defaultMaxFiles
	}
	if l.maxBytes == 0 {
		l.maxBytes = defaultMaxBytes
	}
	if l.exclude, err = relativeExcludes(base, o.Exclude); err != nil {
		return Manifest{}, err
	}
	m := Manifest{}
	if m.Git, err = l.findFiles(ctx, o.Environ); err != nil {
		return Manifest{}, err
	}
	entries := l.sorted()
	if m.Outside, err = l.resolveLinks(entries); err != nil {
		return Manifest{}, err
	}

	temp, err := os.MkdirTemp(filepath.Dir(dst), tempPattern)
	if err != nil {
		return Manifest{}, err
	}
	defer os.RemoveAll(temp)
	copied, err := os.OpenRoot(temp)
	if err != nil {
		return Manifest{}, err
	}
	defer copied.Close()
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return Manifest{}, err
		}
		if err := copyEntry(root, copied, e); err != nil {
			return Manifest{}, err
		}
	}
	// Check all files again only now: a git checkout in progress may have changed the first
	// file after it was copied.
	for _, e := range entries {
		if err := checkUnchanged(root, e); err != nil {
			return Manifest{}, err
		}
	}
	text := formatList(entries)
	if err := copied.WriteFile(listName, text, 0o600); err != nil {
		return Manifest{}, err
	}
	m.Files, m.SHA256 = len(entries), digestOf(text)
	for _, e := range entries {
		if e.info.Mode().IsRegular() {
			m.Bytes += e.info.Size()
		}
	}
	return m, rename(temp, dst)
}

// findFiles finds the files to copy and checks the limits.
func (l *listing) findFiles(ctx context.Context, environ []string) (Git, error) {
	about, err := provenance(ctx, l.base, environ, l.exclude)
	if err != nil {
		return Git{}, err
	}
	if g, ok := findGit(environ); ok && about.WorkTree {
		if err := l.addWorkTree(ctx, g, "."); err != nil {
			return Git{}, err
		}
		if err := l.checkSubmodules(); err != nil {
			return Git{}, err
		}
	}
	if len(l.entries) == 0 {
		if err := l.addDir(ctx, "."); err != nil {
			return Git{}, err
		}
	}
	if len(l.entries) == 0 {
		return Git{}, hints.Errorf("name the folder that the code is in", "it has no files to keep")
	}
	return about, l.checkSize()
}

// rename renames the copy to dst. It never replaces an existing file.
func rename(temp, dst string) error {
	err := unix.Renameat2(unix.AT_FDCWD, temp, unix.AT_FDCWD, dst, unix.RENAME_NOREPLACE)
	// NFS and other file systems do not support RENAME_NOREPLACE.
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		if _, err := os.Lstat(dst); !errors.Is(err, fs.ErrNotExist) {
			return existsError(dst, err)
		}
		return os.Rename(temp, dst)
	}
	if errors.Is(err, unix.EEXIST) {
		return existsError(dst, nil)
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: temp, New: dst, Err: err}
	}
	return nil
}

func existsError(dst string, err error) error {
	if err != nil {
		return err
	}
	return hints.Errorf("a snapshot is never replaced: name another place for it", "%q exists already", dst)
}
