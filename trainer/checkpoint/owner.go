package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

// CheckPrivate returns an error if [Save] would reject dir: if it is a symbolic link, belongs to
// another user, or is writable by others. A missing directory is not an error.
func CheckPrivate(dir string) error {
	if err := checkDir(dir); err != nil {
		return fmt.Errorf("check the directory of checkpoints: %w", err)
	}
	return nil
}

// checkDir returns an error if dir is a symbolic link, belongs to another user, or is writable by
// others: another user could plant a checkpoint that training would resume from. A missing
// directory is not an error.
func checkDir(dir string) error {
	info, err := os.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink != 0:
		return hints.Errorf("put the run directory where the link leads to (--run-dir)", "%q is a symbolic link", dir)
	}
	return checkOwn(dir, info)
}

// checkOwn returns an error if a file or directory belongs to another user or is writable by others.
func checkOwn(dir string, info fs.FileInfo) error {
	if info == nil {
		return fmt.Errorf("the owner of %q is unknown", dir)
	}
	if owner(info) != os.Geteuid() {
		return hints.Errorf("use a different run directory (--run-dir)", "%q belongs to user %d, not to user %d", dir, owner(info), os.Geteuid())
	}
	return checkNotWritable(dir, info)
}

// openOwn opens a directory for changes. The check of [checkDir] applies to the open directory: a
// user who can write to a directory above it can exchange what is at the path at any time. After a
// check of the path only, the removal of temporary files could remove other directories of this
// user, which the other user has moved there. No other user can rename entries of the open
// directory.
func openOwn(dir string) (*os.Root, error) {
	root, err := safefile.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	info, err := root.Stat(".")
	if err == nil {
		err = checkOwn(dir, info)
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	return root, nil
}

// checkNotWritable returns an error if the group or others can write to path. This includes access
// control lists: the mode's group bits are the mask of all entries.
func checkNotWritable(path string, info fs.FileInfo) error {
	if perm := info.Mode().Perm(); perm&0o022 != 0 {
		return hints.Errorf("if you trust its contents, remove the write permission of others with `chmod -R go-w`", "%q has mode %04o: others could have changed it", path, perm)
	}
	return nil
}

// absolute makes the paths in a file system error absolute, if they are relative to dir. A Root returns
// relative paths.
func absolute(dir string, err error) error {
	full := func(path *string) {
		if !filepath.IsAbs(*path) {
			*path = filepath.Join(dir, *path)
		}
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		full(&e.Path)
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		full(&e.Old)
		full(&e.New)
	}
	return err
}

// checkOwner returns an error if a file does not have the same owner as the directory around it, or
// if others can write to it. The owner need not be the user who reads it.
func checkOwner(path string, file, dir fs.FileInfo) error {
	if owner(file) != owner(dir) {
		return hints.Errorf("find out which user created it", "%q belongs to user %d, its directory to user %d", path, owner(file), owner(dir))
	}
	return checkNotWritable(path, file)
}

// owner returns the user ID of the owner of a file, or -1 if the file system has no owners.
func owner(info fs.FileInfo) int {
	uid, _ := safefile.Owner(info)
	return uid
}
