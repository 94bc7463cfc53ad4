package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

// Hold opens the directory and returns a Dir that refers to the open directory. It rejects
// directories of other users and directories that others can write to. If [Create] or [OpenOwn]
// checked the directory, it also rejects any other directory at the path.
//
// All reads and writes of this package through held use the open directory, even if a process
// moves it and puts another directory at its path. [Dir.CheckPlace] detects the move. The
// directory stays open until the caller calls release. Trials of a held sweep are opened
// relative to the sweep's directory.
func (d Dir) Hold() (held Dir, release func(), err error) {
	root, err := d.openRoot()
	if err == nil {
		var info fs.FileInfo
		if info, err = root.Stat("."); err == nil {
			err = checkOwn(info)
		}
		if err == nil && d.checked != nil && !os.SameFile(info, d.checked) {
			err = errReplaced
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

// OpenRun opens and holds the directory of a run of this user, like [OpenOwn]. If the directory at path
// belongs to a sweep, OpenRun opens the directory of the trial with the given index, which may be nil
// for a single run.
func OpenRun(path string, index *int) (d Dir, release func(), err error) {
	if d, release, err = OpenOwn(path); err != nil {
		return Dir{}, nil, err
	}
	record, err := d.ReadRecord()
	if err == nil && record.Sweep == nil {
		return d, release, nil
	}
	defer release()
	if err == nil && index == nil {
		err = hints.Errorf("select a trial with --element N", "run directory %q belongs to a sweep", d.Path)
	}
	if err != nil {
		return Dir{}, nil, err
	}
	return d.Element(*index).Hold()
}

// OpenSweep opens and holds the sweep of the trial in d, and returns it with the trial's index. It
// rejects a sweep like [OpenOwn], and a sweep that has a different directory for this trial.
func (d Dir) OpenSweep() (sweep Dir, index int, release func(), err error) {
	if sweep, release, err = OpenOwn(filepath.Dir(filepath.Dir(d.Path))); err != nil {
		return Dir{}, 0, nil, err
	}
	index, err = strconv.Atoi(filepath.Base(d.Path))
	if err == nil {
		err = sweep.Element(index).checkSame(d)
	}
	if err != nil {
		release()
		return Dir{}, 0, nil, fmt.Errorf("open trial %q of sweep %q: %w", d.Path, sweep.Path, err)
	}
	return sweep, index, release, nil
}

// CreateElement creates the directory of a trial in a held sweep, if it does not exist, and holds it.
func (d Dir) CreateElement(index int) (trial Dir, release func(), err error) {
	trial = d.Element(index)
	err = d.root.MkdirAll(filepath.Dir(trial.below), 0o755)
	if err == nil {
		err = d.root.Mkdir(trial.below, 0o700)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return Dir{}, nil, fmt.Errorf("create run directory %q: %w", trial.Path, cannotMake(err))
	}
	return trial.Hold()
}

// CheckLinks returns an error if the directory of a sweep's trial is reached through a link in the
// sweep's directory with which another user redirects reads; see [safefile.OpenOwnersRoot]. A trial of
// a held sweep is always below it.
func (d Dir) CheckLinks() error {
	if d.root != nil || !d.IsElement() {
		return nil
	}
	for _, path := range []string{filepath.Dir(d.Path), d.Path} {
		if info, err := os.Lstat(path); err != nil || info.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		root, err := safefile.OpenOwnersRoot(path)
		if errors.Is(err, safefile.ErrLink) {
			return fmt.Errorf("open trial %q: %w", d.Path, err)
		}
		if err == nil {
			root.Close()
		}
	}
	return nil
}

// checkSame returns an error if d and other are different directories.
func (d Dir) checkSame(other Dir) error {
	var infos [2]fs.FileInfo
	for i, dir := range []Dir{d, other} {
		root, done, err := dir.open()
		if err != nil {
			return err
		}
		infos[i], err = root.Stat(".")
		done()
		if err != nil {
			return err
		}
	}
	if !os.SameFile(infos[0], infos[1]) {
		return errReplaced
	}
	return nil
}

// IsHeld reports whether the directory belongs to this user and is held open, see [Dir.Hold].
func (d Dir) IsHeld() bool { return d.root != nil }

// errReplaced is the error for a path that led to one directory when it was checked, and to
// another when it was opened, for example through a link.
var errReplaced = hints.Errorf("find out who exchanges it", "another process replaced it just now")

// openRoot opens the directory. The caller closes the result.
func (d Dir) openRoot() (*os.Root, error) {
	if d.root == nil {
		return safefile.OpenRoot(d.Path)
	}
	return safefile.OpenRootIn(d.root, filepath.Join(".", d.below))
}

// open returns the open directory and a function that closes it. For a held directory, done
// does nothing.
func (d Dir) open() (root *os.Root, done func(), err error) {
	if d.root != nil && d.below == "" {
		return d.root, func() {}, nil
	}
	if root, err = d.openRoot(); err != nil {
		return nil, nil, err
	}
	return root, func() { root.Close() }, nil
}

// OpenRoot returns the open directory, for files that other packages write. The caller calls
// done, which keeps a held directory open.
func (d Dir) OpenRoot() (root *os.Root, done func(), err error) { return d.open() }

// WorkingDir returns a path with which a child process of this process can start in the directory,
// even if it was moved and another directory is at its path. The caller calls done after the last
// child has started. Without /proc, the path is the path of the directory.
func (d Dir) WorkingDir() (path string, done func(), err error) {
	root, closeRoot, err := d.open()
	if err != nil {
		return "", nil, err
	}
	defer closeRoot()
	f, err := root.Open(".")
	if err != nil {
		return "", nil, err
	}
	if path, ok := safefile.DescriptorPath(f); ok {
		return path, func() { f.Close() }, nil
	}
	f.Close()
	return d.Path, func() {}, nil
}

// CheckPlace returns a [*MovedError] if the path of a held directory no longer leads to it. It
// returns nil if the directory is not held or if the file system cannot answer.
func (d Dir) CheckPlace() error {
	if d.root == nil || d.below != "" {
		return nil
	}
	held, err := d.root.Stat(".")
	if err != nil {
		return nil
	}
	// Stat follows symbolic links, as Hold does. The path still leads to the directory if the
	// user moves the directory and leaves a link at the old path.
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

// holdsCheckpoints reports whether a held directory contains checkpoints. Unlike
// [Dir.HasCheckpoints], it works after the directory was moved.
func (d Dir) holdsCheckpoints() bool {
	entries, _ := safefile.ReadSomeIn(d.root, checkpointsName, 1)
	return len(entries) > 0
}

// IsDeleted reports whether a held directory was deleted. Writes to it fail.
func (d Dir) IsDeleted() bool {
	var moved *MovedError
	return errors.As(d.CheckPlace(), &moved) && moved.Deleted
}

// now returns the current path of the held directory. It returns an empty string if the kernel
// does not have the path, for example because another host moved the directory.
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

// A MovedError reports that a run directory was moved or deleted during the run.
type MovedError struct {
	Path      string // path at the start of the run
	Now       string // current path; empty if unknown
	Deleted   bool
	CanResume bool // whether the directory contains checkpoints
	Finished  bool // whether the run is complete; set by the caller
}

// Error returns what happened to the directory.
func (e *MovedError) Error() string {
	switch {
	case e.Deleted:
		return fmt.Sprintf("run directory %q was deleted while the run was in progress", e.Path)
	case e.Now != "":
		return fmt.Sprintf("run directory %q was moved to %q while the run was in progress", e.Path, e.Now)
	}
	return fmt.Sprintf("run directory %q was moved or deleted while the run was in progress", e.Path)
}

// Hint returns how to continue.
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
