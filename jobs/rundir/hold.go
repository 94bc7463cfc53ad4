package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Hold opens the directory and returns it with the open directory. It rejects a directory
// of another user, and a directory that others can write to. What this package reads and
// writes for the result is in that directory, even if someone moves it and puts another in
// its place. [Dir.CheckPlace] notices the move. The directory stays open until release is
// called. The element of a held sweep is opened below the sweep's directory.
func (d Dir) Hold() (held Dir, release func(), err error) {
	root, err := d.openRoot()
	if err == nil {
		var info fs.FileInfo
		if info, err = root.Stat("."); err == nil {
			err = checkOwn(info)
		}
		if err != nil {
			root.Close()
		}
	}
	if err != nil {
		return Dir{}, nil, fmt.Errorf("open run directory %q: %w", d.Path, err)
	}
	return Dir{Path: d.Path, root: root}, func() { root.Close() }, nil
}

// openRoot opens the directory.
func (d Dir) openRoot() (*os.Root, error) {
	if d.root == nil {
		return os.OpenRoot(d.Path)
	}
	return d.root.OpenRoot(filepath.Join(".", d.below))
}

// open returns the open directory, and a function that closes it unless it is held.
func (d Dir) open() (root *os.Root, done func(), err error) {
	if d.root != nil && d.below == "" {
		return d.root, func() {}, nil
	}
	if root, err = d.openRoot(); err != nil {
		return nil, nil, err
	}
	return root, func() { root.Close() }, nil
}

// CheckPlace returns a [*MovedError] if the path of a held directory no longer leads to
// it. It returns nil for a directory that is not held, and if the file system does not
// say.
func (d Dir) CheckPlace() error {
	if d.root == nil || d.below != "" {
		return nil
	}
	held, err := d.root.Stat(".")
	if err != nil {
		return nil
	}
	// Stat follows a link, as Hold did: who moves the directory and leaves a link in its
	// place has not broken anything.
	there, err := os.Stat(d.Path)
	switch {
	case err == nil && os.SameFile(held, there):
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR):
		return nil
	}
	moved := &MovedError{Path: d.Path}
	if s, ok := held.Sys().(*syscall.Stat_t); ok && s.Nlink == 0 {
		moved.Deleted = true
	} else {
		moved.Now = d.now(held)
		moved.CanResume = d.holdsCheckpoints()
	}
	return moved
}

// holdsCheckpoints is [Dir.HasCheckpoints] for a held directory, wherever it is.
func (d Dir) holdsCheckpoints() bool {
	f, err := d.root.Open(checkpointsName)
	if err != nil {
		return false
	}
	defer f.Close()
	names, _ := f.Readdirnames(1)
	return len(names) > 0
}

// IsDeleted reports whether a held directory no longer exists, so that nothing can be
// written to it.
func (d Dir) IsDeleted() bool {
	var moved *MovedError
	return errors.As(d.CheckPlace(), &moved) && moved.Deleted
}

// now returns the present path of the held directory, empty if the kernel does not know
// it: another host may have moved the directory.
func (d Dir) now(held os.FileInfo) string {
	f, err := d.root.Open(".")
	if err != nil {
		return ""
	}
	defer f.Close()
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil || !filepath.IsAbs(path) {
		return ""
	}
	if there, err := os.Stat(path); err != nil || !os.SameFile(held, there) {
		return ""
	}
	return path
}

// A MovedError says that a run directory is no longer where it was when its run began.
type MovedError struct {
	Path      string // where it was
	Now       string // where it is; empty if that is not known
	Deleted   bool
	CanResume bool // it holds checkpoints
	Finished  bool // the run is over, and nothing is left to do; the caller sets it
}

// Error says what happened to the directory.
func (e *MovedError) Error() string {
	switch {
	case e.Deleted:
		return fmt.Sprintf("run directory %q was deleted while the run was in progress", e.Path)
	case e.Now != "":
		return fmt.Sprintf("run directory %q was moved to %q while the run was in progress", e.Path, e.Now)
	}
	return fmt.Sprintf("run directory %q was moved or deleted while the run was in progress", e.Path)
}

// Hint says how to continue.
func (e *MovedError) Hint() string {
	switch {
	case e.Deleted:
		return "start the job again from the beginning: everything in the directory is gone"
	case e.Finished:
		return "move it back if other commands are to find the run by its name"
	case e.CanResume:
		return "move it back, or name its new place with --run-dir, and start the job again: it resumes from the last checkpoint in that directory"
	}
	return "move it back, or name its new place with --run-dir, and start the job again"
}
