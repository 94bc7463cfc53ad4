package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Create makes the directory at an absolute path, with mode 0700, and the
// folders above it, or takes one that is there already.
//
// It refuses a path that is a symbolic link or not a directory, or that holds control
// characters, and a directory that belongs to someone else, that others can write into,
// that this user cannot, or that holds other files and no run. It leaves nothing in a
// directory that it refuses. Such errors may have a hint.
func Create(path string) (Dir, error) {
	if !filepath.IsAbs(path) {
		return Dir{}, fmt.Errorf("create run directory %q: the path is not absolute", path)
	}
	path = filepath.Clean(path)
	if err := create(path); err != nil {
		return Dir{}, fmt.Errorf("create run directory %q: %w", path, err)
	}
	d := Dir{Path: path}
	// Before anybody locks it: a lock is a file, too.
	if _, err := os.Lstat(filepath.Join(path, recordName)); errors.Is(err, fs.ErrNotExist) {
		if err := d.empty(); err != nil {
			return Dir{}, fmt.Errorf("use run directory %q: %w", path, err)
		}
	}
	return d, nil
}

func create(path string) error {
	// No batch script can name it.
	if i := strings.IndexFunc(path, unicode.IsControl); i >= 0 {
		c, _ := utf8.DecodeRuneInString(path[i:])
		return refuse("choose another name with --run-dir", "it holds the control character %U", c)
	}
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return cannotMake(err)
		}
		// Another submission may make it at the same moment: look again below.
		if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return cannotMake(err)
		}
	} else if err != nil {
		return cannotMake(err)
	}
	return check(path)
}

// check reports why a directory cannot hold a run of this user.
func check(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	const elsewhere = "choose another with --run-dir"
	switch mode := info.Mode(); {
	case mode&fs.ModeSymlink != 0:
		return refuse("name the folder that it leads to with --run-dir", "it is a symbolic link")
	case !mode.IsDir():
		return refuse(elsewhere, "it exists and is not a directory")
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; int(owner) != os.Geteuid() {
		return refuse(elsewhere, "it belongs to user %d, and this is user %d", owner, os.Geteuid())
	}
	if perm := info.Mode().Perm(); perm&0o022 != 0 {
		return refuse("choose another place with --run-dir; if the directory is yours alone, `chmod go-w` it",
			"its mode is %04o: others could change what the job runs", perm)
	}
	// The kernel's word counts, not the mode: the file system may be read-only.
	if err := unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return refuse(elsewhere, "it cannot be written into: %w", err)
	}
	return nil
}

// Open takes a run directory that was made before. Its owner may be someone
// else: what is in it can still be looked at.
func Open(path string) (Dir, error) {
	if !filepath.IsAbs(path) {
		return Dir{}, fmt.Errorf("open run directory %q: the path is not absolute", path)
	}
	d := Dir{Path: filepath.Clean(path)}
	info, err := os.Stat(d.Path)
	if err == nil && !info.IsDir() {
		err = refuse("", "it is not a directory")
	}
	if err == nil {
		_, err = os.Stat(filepath.Join(d.Path, recordName))
		if errors.Is(err, fs.ErrNotExist) && d.HasCheckpoints() {
			err = refuse(RepairHint(d.Path), "it has checkpoints but no %s", recordName)
		} else if errors.Is(err, fs.ErrNotExist) {
			hint := "`ddpbatch submit` and `ddpbatch launch` make run directories, under runs/ by default"
			if d.IsRepairable() {
				hint = RepairHint(d.Path)
			}
			err = refuse(hint, "it holds no %s, so it is not one", recordName)
		}
	}
	if err != nil {
		return Dir{}, fmt.Errorf("open run directory %q: %w", d.Path, err)
	}
	return d, nil
}

// OpenOwn opens a run directory whose files this process is about to run: the job file and
// the site's profile hold commands. It rejects the directories that [Create] rejects. The
// check at creation is not enough, because whoever can write to a directory above may have
// replaced the run directory since.
func OpenOwn(path string) (Dir, error) {
	d, err := Open(path)
	if err != nil {
		return Dir{}, err
	}
	if err := check(d.Path); err != nil {
		return Dir{}, fmt.Errorf("open run directory %q: %w", d.Path, err)
	}
	return d, nil
}

// HasCheckpoints reports whether the directory holds checkpoints, whatever else is missing.
func (d Dir) HasCheckpoints() bool {
	entries, err := os.ReadDir(d.Checkpoints())
	return err == nil && len(entries) > 0
}

// cannotMake says what is in the way: of a system error only the part that has
// the path in it names which folder of a long path it is.
func cannotMake(err error) error {
	return refuse("choose a place that you can write to with --run-dir", "%w", err)
}

// refusal is an error with a hint.
type refusal struct {
	error
	hint string
}

func refuse(hint, format string, args ...any) error {
	return &refusal{fmt.Errorf(format, args...), hint}
}

func (r *refusal) Unwrap() error { return errors.Unwrap(r.error) }

// Hint says what to do.
func (r *refusal) Hint() string { return r.hint }
