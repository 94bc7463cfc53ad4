package snapshot

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

// Take copies the code in src to a new directory with the given name and mode 0700 in parent. src
// must be an absolute path. The new directory may be inside src. Take creates it atomically: it makes
// the copy under a temporary name and then renames it. It creates and removes files only in parent,
// even if another directory takes its path.
//
// Take returns an error if src contains no files, too many files, too much data, or a FIFO, a
// socket, or a device, or if a file changes during the copy. The error may have a hint.
func Take(ctx context.Context, src string, parent *os.Root, name string, o Options) (Manifest, error) {
	m, err := take(ctx, src, parent, name, o)
	if err != nil {
		return Manifest{}, fmt.Errorf("take snapshot of %q: %w", src, err)
	}
	return m, nil
}

func take(ctx context.Context, src string, parent *os.Root, name string, o Options) (Manifest, error) {
	if !filepath.IsAbs(src) {
		return Manifest{}, errors.New("a path is not absolute")
	}
	if _, err := parent.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		return Manifest{}, existsError(filepath.Join(parent.Name(), name), err)
	}
	base, err := filepath.EvalSymlinks(src)
	if err != nil {
		return Manifest{}, err
	}
	root, err := safefile.OpenRoot(base)
	if err != nil {
		return Manifest{}, err
	}
	defer root.Close()
	l := &listing{root: root, base: base, maxFiles: cmp.Or(o.MaxFiles, defaultMaxFiles), maxBytes: cmp.Or(o.MaxBytes, defaultMaxBytes),
		entries: map[string]*entry{}, realDirs: map[string]bool{}}
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

	temp := ownPrefix + rand.Text()[:10]
	if err := parent.Mkdir(temp, 0o700); err != nil {
		return Manifest{}, err
	}
	defer parent.RemoveAll(temp) // fails after the rename, as intended
	copied, err := parent.OpenRoot(temp)
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
	return m, rename(parent, temp, name)
}

// findFiles finds the files to copy and checks the limits.
func (l *listing) findFiles(ctx context.Context, environ []string) (Git, error) {
	about, err := provenance(ctx, l.base, environ, l.exclude)
	if err != nil {
		return Git{}, err
	}
	if g, ok := findGit(environ, l.base); ok && about.WorkTree {
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
		return Git{}, hints.Errorf("set command.workdir to the directory of the code", "the directory has no files")
	}
	return about, l.checkSize()
}

// rename renames the copy. It never replaces an existing file.
func rename(parent *os.Root, temp, name string) error {
	dir, err := parent.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	dst := filepath.Join(parent.Name(), name)
	err = unix.Renameat2(int(dir.Fd()), temp, int(dir.Fd()), name, unix.RENAME_NOREPLACE)
	// NFS and other file systems do not support RENAME_NOREPLACE.
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		if _, err := parent.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			return existsError(dst, err)
		}
		return parent.Rename(temp, name)
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
	return hints.Errorf("a snapshot is never replaced; choose a different path", "%q already exists", dst)
}

// copyEntry copies one file and stores its digest in e.
func copyEntry(from, to *os.Root, e *entry) error {
	if err := to.MkdirAll(filepath.Dir(e.path), 0o700); err != nil {
		return err
	}
	if !e.info.Mode().IsRegular() {
		e.sum = digestOf([]byte(e.link))
		return to.Symlink(e.link, e.path)
	}
	in, err := openRegular(from, e.path, e.info)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := to.OpenFile(e.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600|e.info.Mode().Perm()&0o100)
	if err != nil {
		return err
	}
	defer out.Close()
	// If the file grows, do not copy more than the size that was checked against the limits.
	hash := sha256.New()
	n, err := io.Copy(io.MultiWriter(out, hash), io.LimitReader(in, e.info.Size()+1))
	if err != nil {
		return err
	}
	if n != e.info.Size() {
		return changedError(e.path)
	}
	e.sum = hex.EncodeToString(hash.Sum(nil))
	return out.Close()
}

// openRegular opens the regular file that info describes. It returns an error if another file
// has replaced it, such as a symbolic link or a FIFO, which would wait for a writer.
func openRegular(root *os.Root, path string, info fs.FileInfo) (*os.File, error) {
	f, err := safefile.OpenIn(root, path, 0)
	if notExists(err) || errors.Is(err, safefile.ErrNotRegular) {
		return nil, changedError(path)
	}
	if err != nil {
		return nil, err
	}
	current, err := f.Stat()
	if err == nil && !os.SameFile(current, info) {
		err = changedError(path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// checkUnchanged returns an error if a file has changed since it was listed.
func checkUnchanged(root *os.Root, e *entry) error {
	current, err := root.Lstat(e.path)
	if err != nil && !notExists(err) {
		return err
	}
	if err != nil || !os.SameFile(current, e.info) || current.Mode() != e.info.Mode() ||
		current.Size() != e.info.Size() || !current.ModTime().Equal(e.info.ModTime()) {
		return changedError(e.path)
	}
	return nil
}

func changedError(path string) error {
	return hints.Errorf("submit again when no program writes to the file, or add it to .gitignore", "%q changed while it was copied", path)
}

func digestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// resolveLinks determines the target of each symbolic link in the copy. entries must be complete.
// It returns the links that lead outside the copy.
func (l *listing) resolveLinks(entries []*entry) (outside []string, err error) {
	copied := map[string]bool{".": true}
	for _, e := range entries {
		for path := e.path; !copied[path]; path = filepath.Dir(path) {
			copied[path] = true
		}
	}
	for _, e := range entries {
		if e.info.Mode().IsRegular() {
			continue
		}
		text, err := l.root.Readlink(e.path)
		if err != nil {
			return nil, err
		}
		var out bool
		e.link, out = l.resolveLink(filepath.Dir(e.path), text, copied)
		if out {
			outside = append(outside, e.path)
		}
	}
	return outside, nil
}

// resolveLink returns the target of a link in dir for the copy, and whether the target is outside
// the copy. copied contains the paths in the copy.
func (l *listing) resolveLink(dir, text string, copied map[string]bool) (link string, outside bool) {
	absolute := filepath.IsAbs(text)
	target := text
	if !absolute {
		// Do not clean the path: ".." after a symbolic link refers to the parent of the link's
		// target.
		target = l.base + "/" + dir + "/" + text
	}
	resolved, err := filepath.EvalSymlinks(target)
	dangling := err != nil
	if dangling {
		resolved = filepath.Clean(target)
	}
	rel, err := filepath.Rel(l.base, resolved)
	inside := err == nil && filepath.IsLocal(rel)
	switch {
	case inside && (copied[rel] || dangling):
		// A dangling link, such as an editor's lock, is also dangling in the copy.
		if !absolute && filepath.Join(dir, text) == rel {
			return text, false
		}
		if relative, err := filepath.Rel(dir, rel); err == nil {
			return relative, false
		}
		return resolved, true
	case absolute:
		return text, true
	}
	return resolved, true
}
