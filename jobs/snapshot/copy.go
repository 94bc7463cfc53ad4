package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

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
	now, err := f.Stat()
	if err == nil && !os.SameFile(now, info) {
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
	now, err := root.Lstat(e.path)
	if err != nil && !notExists(err) {
		return err
	}
	if err != nil || !os.SameFile(now, e.info) || now.Mode() != e.info.Mode() ||
		now.Size() != e.info.Size() || !now.ModTime().Equal(e.info.ModTime()) {
		return changedError(e.path)
	}
	return nil
}

func changedError(path string) error {
	return hints.Errorf("try again when nothing writes there; if a program always does, leave that file out", "%q changed while it was copied", path)
}

func digestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
