package rundir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

// secretPrefix begins the names of the files that hold the secret of an attempt.
const secretPrefix = "secret-"

// maxPrivate is the maximum size in bytes of a file that only this user can read. The largest
// one holds a secret and the addresses of a node.
const maxPrivate = 64 << 10

// WriteSecret writes the secret of an attempt to a new file with mode 0600, and returns its
// name for [Dir.ReadSecret]. No other attempt uses the name, so a node that caches names or
// attributes of the file system cannot find an older file. The error may have a hint.
func (d Dir) WriteSecret(attempt int, secret []byte) (name string, err error) {
	name = fmt.Sprintf("%s%d-%s", secretPrefix, attempt, randomID())
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %q: %w", filepath.Join(d.Path, name), err)
		}
	}()
	f, err := d.openToWrite(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY)
	if err != nil {
		return "", err
	}
	info, err := makePrivate(f)
	if err == nil {
		if private := safefile.CheckPrivate(info); private != nil {
			err = hints.Errorf("choose a file system that keeps owners and modes with --run-dir", "its file system gives others access: %w", private)
		}
	}
	if err == nil {
		_, err = f.Write(secret)
	}
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		_ = d.RemoveSecret(name)
		return "", err
	}
	return name, nil
}

// makePrivate takes a new file from others, if the file system can do so, and returns its
// attributes. A file created with mode 0600 can be open to others on a file system with NFSv4
// access control lists, where it inherits entries from the directory.
func makePrivate(f *os.File) (fs.FileInfo, error) {
	info, err := f.Stat()
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return info, err
	}
	_ = f.Chmod(0o600) // file systems without modes reject it
	return f.Stat()
}

// RemoveSecret removes a file that [Dir.WriteSecret] has written.
func (d Dir) RemoveSecret(name string) error {
	root, done, err := d.open()
	if err != nil {
		return err
	}
	defer done()
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %q: %w", filepath.Join(d.Path, name), err)
	}
	return nil
}

// RemoveSecrets removes the files of [Dir.WriteSecret] that launchers have left which were
// killed. The caller holds the lock of the launcher.
func (d Dir) RemoveSecrets() error {
	root, done, err := d.open()
	if err != nil {
		return err
	}
	defer done()
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	for _, name := range names {
		if strings.HasPrefix(name, secretPrefix) {
			err = errors.Join(err, root.Remove(name))
		}
	}
	return err
}

// ReadSecret returns the content of a file that [Dir.WriteSecret] has written. See
// [Dir.ReadRendezvous] for the files that it rejects.
func (d Dir) ReadSecret(name string) ([]byte, error) { return d.readPrivate(name) }

// readPrivate returns the content of a small file of the directory. It returns an error
// unless the file is regular, belongs to this user, and is closed to all others.
func (d Dir) readPrivate(name string) ([]byte, error) {
	f, err := d.openFile(filepath.Base(name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil {
		err = safefile.CheckPrivate(info)
	}
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", filepath.Join(d.Path, name), err)
	}
	return io.ReadAll(io.LimitReader(f, maxPrivate))
}
