package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

// Create creates the run directory at an absolute path with mode 0700, and any missing
// parents. If the directory exists, Create checks it and returns it.
//
// Create rejects the following paths and directories. The error may have a hint.
//   - paths that are symbolic links, are not directories, or contain control characters
//   - directories that belong to another user, that others can write to, or that this user
//     cannot write to
//   - directories that contain other files but no run
//   - new directories in a parent that another user may have prepared in a public directory,
//     such as /tmp
//
// Other parent directories may also expose the run directory: see [Exposures]. Create adds no
// file to a directory that it rejects.
func Create(path string) (Dir, error) {
	if !filepath.IsAbs(path) {
		return Dir{}, fmt.Errorf("create run directory %q: the path is not absolute", path)
	}
	path = filepath.Clean(path)
	info, err := create(path)
	if err != nil {
		return Dir{}, fmt.Errorf("create run directory %q: %w", path, err)
	}
	d := Dir{Path: path, checked: info}
	// Check this before the first lock: the lock file would make the directory non-empty.
	// Check the record last: another process that creates the run writes the record first.
	if err := d.empty(); err != nil && !d.hasRecord() {
		return Dir{}, fmt.Errorf("use run directory %q: %w", path, err)
	}
	return d, nil
}

func (d Dir) hasRecord() bool {
	_, err := os.Lstat(filepath.Join(d.Path, recordName))
	return !errors.Is(err, fs.ErrNotExist)
}

// Reserve creates an empty directory for a new run with the checks of [Create]. It reports false if
// something already exists at path.
func Reserve(path string) (created bool, err error) {
	if err := checkName(path); err != nil {
		return false, fmt.Errorf("create run directory %q: %w", path, err)
	}
	if _, err := os.Lstat(path); err == nil {
		return false, nil
	}
	err = CheckParent(filepath.Dir(path))
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = os.Mkdir(path, 0o700)
	}
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("create run directory %q: %w", path, cannotMake(err))
	}
	return true, nil
}

// checkName returns an error for a path that a batch script cannot contain.
func checkName(path string) error {
	if i := strings.IndexFunc(path, unicode.IsControl); i >= 0 {
		c, _ := utf8.DecodeRuneInString(path[i:])
		return hints.Errorf("choose another name with --run-dir", "it holds the control character %U", c)
	}
	return nil
}

func create(path string) (fs.FileInfo, error) {
	if err := checkName(path); err != nil {
		return nil, err
	}
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := CheckParent(filepath.Dir(path)); err != nil {
			return nil, err
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, cannotMake(err)
		}
		// Another submission may create the directory at the same time: check below.
		if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, cannotMake(err)
		}
	} else if err != nil {
		return nil, cannotMake(err)
	}
	return check(path)
}

// elsewhere is the hint for a directory that this user cannot use.
const elsewhere = "choose another with --run-dir"

// check returns the directory at path. It returns an error if this user cannot keep a run in it.
func check(path string) (fs.FileInfo, error) {
	info, err := os.Lstat(path)
	if err == nil {
		err = checkOwn(info)
	}
	if err != nil {
		return nil, err
	}
	// Query the kernel: the mode does not show a read-only file system.
	if err := unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return nil, hints.Errorf(elsewhere, "it cannot be written into: %w", err)
	}
	return info, nil
}

// checkOwn returns an error unless the run directory belongs to this user and no other user
// can write to it.
func checkOwn(info fs.FileInfo) error {
	switch mode := info.Mode(); {
	case mode&fs.ModeSymlink != 0:
		return hints.Errorf("give the directory that it points to with --run-dir", "it is a symbolic link")
	case !mode.IsDir():
		return hints.Errorf(elsewhere, "it exists and is not a directory")
	}
	if err := safefile.CheckOwner(info); err != nil {
		return hints.Errorf(elsewhere, "it %w", err)
	}
	if perm := info.Mode().Perm(); perm&0o022 != 0 {
		return hints.Errorf("choose a different directory with --run-dir; if the directory is yours alone, `chmod go-w` it",
			"its mode is %04o: others could change what the job runs", perm)
	}
	return nil
}

// Open returns the existing run directory at an absolute path. The directory may belong to
// another user, so use it only for reading.
func Open(path string) (Dir, error) {
	if !filepath.IsAbs(path) {
		return Dir{}, fmt.Errorf("open run directory %q: the path is not absolute", path)
	}
	d := Dir{Path: filepath.Clean(path)}
	info, err := os.Stat(d.Path)
	if err == nil && !info.IsDir() {
		err = errors.New("it is not a directory")
	}
	if err == nil {
		_, err = os.Stat(filepath.Join(d.Path, recordName))
		if errors.Is(err, fs.ErrNotExist) && d.HasCheckpoints() {
			err = hints.Errorf(repairHint(d.Path), "it has checkpoints but no %s", recordName)
		} else if errors.Is(err, fs.ErrNotExist) {
			hint := "`ddpbatch submit` and `ddpbatch launch` make run directories, under runs/ by default"
			if d.IsRepairable() {
				hint = repairHint(d.Path)
			}
			err = hints.Errorf(hint, "it holds no %s, so it is not one", recordName)
		}
	}
	if err != nil {
		return Dir{}, fmt.Errorf("open run directory %q: %w", d.Path, err)
	}
	return d, nil
}

// OpenOwn opens and holds a run directory of this user; see [Dir.Hold]. It is for callers that
// act on the contents of the directory. The job file and the site profile contain commands,
// and the record contains the jobs to cancel.
//
// OpenOwn rejects directories of other users, directories that others can write to, and
// symbolic links. The check at creation is not sufficient: a user who can write to a parent
// directory may have replaced the run directory since then.
func OpenOwn(path string) (d Dir, release func(), err error) {
	if d, err = Open(path); err != nil {
		return Dir{}, nil, err
	}
	info, err := os.Lstat(d.Path)
	if err == nil {
		err = checkOwn(info)
	}
	if err != nil {
		return Dir{}, nil, fmt.Errorf("open run directory %q: %w", d.Path, err)
	}
	d.checked = info
	return d.Hold()
}

// HasCheckpoints reports whether the directory contains checkpoints. Other files may be
// missing.
func (d Dir) HasCheckpoints() bool {
	root, err := safefile.OpenOwnersRoot(d.Checkpoints())
	if err != nil {
		return false
	}
	defer root.Close()
	entries, _ := safefile.ReadSomeIn(root, ".", 1)
	return len(entries) > 0
}

// cannotMake adds a hint to a file system error. The *fs.PathError in err names the component
// of the path that caused the failure.
func cannotMake(err error) error {
	return hints.Errorf("choose a place that you can write to with --run-dir", "%w", err)
}
