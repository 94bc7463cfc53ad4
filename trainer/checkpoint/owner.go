package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// CheckPrivate reports a directory that [Save] would refuse: a symbolic link, a directory of
// another user, or one that others can write into. A missing directory is no error.
func CheckPrivate(dir string) error {
	if err := private(dir); err != nil {
		return fmt.Errorf("check the directory of checkpoints: %w", err)
	}
	return nil
}

// private refuses a folder to save into that is a symbolic link, belongs to another
// user, or that others can write into: they could put there what training goes on from.
// One that is not there is fine.
func private(dir string) error {
	info, err := os.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink != 0:
		return insecure{fmt.Errorf("%q is a symbolic link", dir), "put the run directory where the link leads to (--run-dir)"}
	case owner(info) != os.Geteuid():
		return insecure{fmt.Errorf("%q belongs to user %d, and this is user %d", dir, owner(info), os.Geteuid()), "give the run a directory of its own (--run-dir)"}
	}
	return unshareable(dir, info)
}

// unshareable refuses what the group or others can write to. Access control lists show
// there too: the group's bits are the most that any of them gives.
func unshareable(path string, info fs.FileInfo) error {
	if perm := info.Mode().Perm(); perm&0o022 != 0 {
		return insecure{fmt.Errorf("%q has mode %04o: others could have changed it", path, perm), fmt.Sprintf("if it is as you left it, `chmod -R go-w %q`", path)}
	}
	return nil
}

// belongs refuses a file that is not of the user that the folder around it is of, or
// that others can write to. Whose that is does not matter to who reads it.
func belongs(path string, file, folder fs.FileInfo) error {
	if owner(file) != owner(folder) {
		return insecure{fmt.Errorf("%q belongs to user %d, the folder that it is in to user %d", path, owner(file), owner(folder)), "find out who put it there"}
	}
	return unshareable(path, file)
}

func owner(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }

// insecure is something that others could have written, or could write.
type insecure struct {
	error
	hint string
}

// Hint says what to do about it.
func (i insecure) Hint() string { return i.hint }
