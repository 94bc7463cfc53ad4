package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/atomicfile"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

// write replaces a file of the directory atomically with a file with mode 0600; see [atomicfile.WriteIn].
func (d Dir) write(name string, content []byte) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %q: %w", filepath.Join(d.Path, name), err)
		}
	}()
	root, done, err := d.open()
	if err != nil {
		return err
	}
	defer done()
	private := func(f *os.File) error { _, err := makePrivate(f); return err }
	return atomicfile.WriteIn(root, name, atomicfile.Options{Temp: tempPrefix + randomID(), Prepare: private}, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

// writeJSON replaces a file of the directory with v in one line of JSON.
func (d Dir) writeJSON(name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return d.write(name, append(text, '\n'))
}

// mkdir creates a subdirectory with mode 0700, unless it exists.
func (d Dir) mkdir(name string) error {
	root, done, err := d.open()
	if err == nil {
		defer done()
		err = root.Mkdir(name, 0o700)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("create %q: %w", filepath.Join(d.Path, name), err)
	}
	return nil
}

// remove removes a file of the directory. It is not an error if the file does not exist.
func (d Dir) remove(name string) error {
	root, done, err := d.open()
	if err == nil {
		defer done()
		err = root.Remove(name)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %q: %w", filepath.Join(d.Path, name), err)
	}
	return nil
}

// WriteScript stores the batch script before its submission.
func (d Dir) WriteScript(script []byte) error { return d.write(scriptName, script) }

// WriteSite stores the site profile.
func (d Dir) WriteSite(profile []byte) error { return d.write(siteName, profile) }

// WriteFailure stores the failure report of an attempt.
func (d Dir) WriteFailure(text []byte) error { return d.write(failureName, text) }

// WriteRendezvous stores the address of rank 0 for the ranks of a step without a launcher.
// Other ranks may read the file at any time.
func (d Dir) WriteRendezvous(jobID, stepID string, restart int, text []byte) error {
	return d.write(filepath.Base(d.Rendezvous(jobID, stepID, restart)), text)
}

// ProtectLog makes the log of a job inaccessible to other users, if the log exists. Slurm
// creates it with the umask of the submitting process, but the other files in the directory
// are accessible to the owner only.
func (d Dir) ProtectLog(jobID string) error {
	f, err := d.openFile(filepath.Base(d.BatchLog(jobID)))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, safefile.ErrLink), errors.Is(err, safefile.ErrNotRegular):
		return nil
	case err != nil:
		return fmt.Errorf("protect the job's log: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		err = f.Chmod(info.Mode().Perm() & 0o700)
	}
	if err != nil {
		return fmt.Errorf("protect the job's log: %w", err)
	}
	return nil
}

// openToWrite opens a regular file in the directory for writing. With os.O_CREATE in flags, it
// creates the file with mode 0600. It does not follow symbolic links, and it does not wait for
// the reader of a FIFO.
func (d Dir) openToWrite(name string, flags int) (*os.File, error) {
	root, done, err := d.open()
	if err != nil {
		return nil, err
	}
	defer done()
	return openToWrite(root, filepath.Join(d.Path, name), flags)
}

// openToWrite opens a file in an open directory for writing. See [Dir.openToWrite].
func openToWrite(root *os.Root, path string, flags int) (*os.File, error) {
	f, err := safefile.OpenFileIn(root, filepath.Base(path), flags|safefile.NoFollow, 0o600)
	if where, ok := errors.AsType[*fs.PathError](err); ok {
		return nil, &fs.PathError{Op: where.Op, Path: path, Err: where.Err}
	}
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(int(f.Fd()), false); err != nil { // a program may inherit the file as its output
		f.Close()
		return nil, err
	}
	return f, nil
}

// OpenCode opens the directory with the code snapshots of all submissions, and creates it with mode
// 0700 if necessary. The caller closes it.
func (d Dir) OpenCode() (*os.Root, error) { return d.openSubdir(codeName) }

// RemoveCode removes the code snapshot of a submission, if there is one. It removes files only from
// the open directory.
func (d Dir) RemoveCode(submission string) error {
	root, done, err := d.open()
	if err != nil {
		return err
	}
	defer done()
	return root.RemoveAll(filepath.Join(codeName, filepath.Base(submission)))
}

// AppendRankLog opens the log of a rank for appending. It creates the file and its directory
// if necessary.
func (d Dir) AppendRankLog(rank int) (*os.File, error) {
	logs, err := d.openSubdir(logsName)
	if err != nil {
		return nil, err
	}
	defer logs.Close()
	return openToWrite(logs, d.RankLog(rank), os.O_CREATE|os.O_APPEND|os.O_WRONLY)
}

// WriteTrace replaces the trace of a rank with the output of write. It creates the directory of the
// traces if necessary.
func (d Dir) WriteTrace(rank int, write func(io.Writer) error) error {
	traces, err := d.openSubdir(tracesName)
	if err != nil {
		return err
	}
	defer traces.Close()
	return atomicfile.WriteIn(traces, filepath.Base(d.Trace(rank)), atomicfile.Options{}, write)
}

// RemoveRendezvous removes the file of [Dir.WriteRendezvous].
func (d Dir) RemoveRendezvous(jobID, stepID string, restart int) error {
	return d.remove(filepath.Base(d.Rendezvous(jobID, stepID, restart)))
}

// Remove deletes the directory and its contents. If the directory is held and a different
// directory is now at its path, Remove deletes the contents of the held directory, and the other
// directory only if it is empty: it may be another run of this user.
func (d Dir) Remove() error {
	root, done, err := d.open()
	if err != nil {
		return err
	}
	defer done()
	entries, err := fs.ReadDir(root.FS(), ".")
	for _, e := range entries {
		err = errors.Join(err, root.RemoveAll(e.Name()))
	}
	if err != nil {
		return err
	}
	if err := unix.Rmdir(d.Path); err != nil { // not os.Remove, which also removes a file
		return &fs.PathError{Op: "remove", Path: d.Path, Err: err}
	}
	return nil
}
