// Package atomicfile replaces files atomically. At any time, also after a crash, a reader finds
// either the complete old file or the complete new file.
//
// A file is written under a temporary name in the same directory, synced, and renamed. A
// symbolic link with the file's name is replaced; the file that it points to does not
// change. With [Options].New, the package creates a file and never replaces one. A crash may leave
// a temporary file ([TempSuffix]), which the package does not remove.
//
// The package does not lock files. If two processes write a file at the same time, the file of the
// last rename remains.
package atomicfile

import (
	"bufio"
	"cmp"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

// Options holds the options of a write. The zero value replaces an existing file and uses mode
// 0600. On a file system without hard links, New may replace a file that another process creates
// during the write.
type Options struct {
	Perm   fs.FileMode // before the umask; 0 is 0600
	New    bool        // return an error that wraps fs.ErrExist if the file exists
	NoSync bool        // do not wait for the disk: after a power failure the file may be empty

	Temp    string               // temporary name; by default, the name with a suffix (TempSuffix)
	Prepare func(*os.File) error // called with the temporary file before the write; may be nil
}

// bufferSize is the size of writes in bytes. Parallel file systems prefer large writes.
const bufferSize = 1 << 20

// TempSuffix is the suffix of temporary names, which start with a dot. A crash may leave a
// temporary file.
const TempSuffix = ".tmp"

// Write calls write and replaces the file at path with its output. If write returns an error,
// Write returns this error and does not change the file.
func Write(path string, o Options, write func(io.Writer) error) error {
	root, err := safefile.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer root.Close()
	err = WriteIn(root, filepath.Base(path), o, write)
	if exists, ok := errors.AsType[*fs.PathError](err); ok && exists.Err == fs.ErrExist {
		exists.Path = path
	}
	return err
}

// WriteIn does the same as [Write] for a name in an open directory.
func WriteIn(root *os.Root, name string, o Options, write func(io.Writer) error) error {
	errExist := &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
	if _, err := root.Lstat(name); err == nil && o.New {
		return errExist // before write is called
	}
	if o.Perm == 0 {
		o.Perm = 0o600
	}
	temp := cmp.Or(o.Temp, "."+name+"."+rand.Text()[:8]+TempSuffix)
	f, err := root.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, o.Perm)
	if err != nil {
		return err
	}
	defer root.Remove(temp) // fails after a rename, as it should
	buffered := bufio.NewWriterSize(f, bufferSize)
	if o.Prepare != nil {
		err = o.Prepare(f)
	}
	if err == nil {
		err = write(buffered)
	}
	if err == nil {
		err = buffered.Flush()
	}
	if err == nil && !o.NoSync {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if o.New {
		switch err = root.Link(temp, name); { // unlike a rename, it replaces no file
		case errors.Is(err, fs.ErrExist):
			return errExist
		case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOTSUP), errors.Is(err, unix.ENOSYS):
			err = root.Rename(temp, name) // the file system has no hard links
		}
	} else {
		err = root.Rename(temp, name)
	}
	if err != nil || o.NoSync {
		return err
	}
	return syncDir(root)
}

// syncDir syncs the directory, so that the new name survives a power failure.
func syncDir(root *os.Root) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTSUP) {
		return err
	}
	return nil // some file systems cannot sync directories
}
