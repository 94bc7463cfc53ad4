package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

// secretPrefix is the prefix of the names of secret files. Each holds the secret of one
// attempt.
const secretPrefix = "secret-"

// maxPrivate is the maximum size in bytes of a file that only this user can read. The largest
// such file contains a secret and the addresses of a node.
const maxPrivate = 64 << 10

// WriteSecret writes the secret of an attempt to a new file with mode 0600 and returns the
// file name for [Dir.ReadSecret]. No other attempt uses the name, so a node with stale file
// system caches cannot find an older file. WriteSecret rejects file systems that give other
// users access. The error may have a hint.
func (d Dir) WriteSecret(attempt int, secret []byte) (name string, err error) {
	name = fmt.Sprintf("%s%d-%s", secretPrefix, attempt, randomID())
	path := filepath.Join(d.Path, name)
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %q: %w", path, err)
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

// makePrivate sets the mode of a new file to 0600 if other users can access it, and returns
// the file's attributes. It leaves the mode unchanged if the file system rejects the change.
// On file systems with NFSv4 access control lists, a file created with mode 0600 can be
// accessible to others, because it inherits entries from its directory.
func makePrivate(f *os.File) (fs.FileInfo, error) {
	info, err := f.Stat()
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return info, err
	}
	_ = f.Chmod(0o600) // file systems without modes reject it
	return f.Stat()
}

// RemoveSecret removes a file of [Dir.WriteSecret].
func (d Dir) RemoveSecret(name string) error { return d.remove(name) }

// RemoveSecrets removes secret files that killed launchers left behind. The caller must hold
// the launcher lock.
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

// ReadSecret returns the content of a file of [Dir.WriteSecret]. It rejects the same files as
// [Dir.ReadRendezvous].
func (d Dir) ReadSecret(name string) ([]byte, error) { return d.readPrivate(name) }

// readPrivate returns the content of a small file in the directory. It returns an error unless
// the file is regular, has at most maxPrivate bytes, belongs to this user, and is inaccessible to
// all other users.
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
	return safefile.ReadAll(f, filepath.Join(d.Path, name), maxPrivate)
}
