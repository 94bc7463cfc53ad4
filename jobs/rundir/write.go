package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// write replaces a file of the directory atomically: it writes a temporary file with
// mode 0600, syncs it, renames it, and syncs the directory.
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
	temp := tempPrefix + randomID()
	f, err := root.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer root.Remove(temp) // fails after the rename, as it should
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if err := root.Rename(temp, name); err != nil {
		return err
	}
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// WriteScript stores the batch script that is about to be submitted.
func (d Dir) WriteScript(script []byte) error { return d.write(scriptName, script) }

// WriteSite stores the profile of the job's site.
func (d Dir) WriteSite(profile []byte) error { return d.write(siteName, profile) }

// WriteFailure stores how an attempt failed.
func (d Dir) WriteFailure(text []byte) error { return d.write(filepath.Base(d.Failure()), text) }

// WriteRendezvous stores where the ranks of a step without a launcher find
// rank 0. Other ranks may look for the file at any time.
func (d Dir) WriteRendezvous(jobID, stepID string, restart int, text []byte) error {
	return d.write(filepath.Base(d.Rendezvous(jobID, stepID, restart)), text)
}

// ProtectLog takes the log of a job from others, if it is there: Slurm makes it with the
// umask of who submitted the job, and all else here is for the owner alone.
func (d Dir) ProtectLog(jobID string) error {
	path := d.BatchLog(jobID)
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("protect the job's log: %w", err)
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o077 == 0:
		return nil
	}
	if err := os.Chmod(path, info.Mode().Perm()&0o700); err != nil {
		return fmt.Errorf("protect the job's log: %w", err)
	}
	return nil
}
