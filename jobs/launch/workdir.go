package launch

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

// openSnapshot opens the directory with the snapshot of the user's code, in which the program
// starts. The launcher has verified the snapshot by its path. Since then, a user with write
// access to a parent directory may have replaced it. So openSnapshot returns an error unless
// this user owns the directory and no other user can write to it.
func openSnapshot(path string) (*os.File, error) {
	dir, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("open the snapshot of the code: %w", err)
	}
	info, err := dir.Stat()
	if err == nil {
		err = safefile.CheckOwner(info)
	}
	if err == nil && info.Mode().Perm()&0o022 != 0 {
		err = fmt.Errorf("mode is %04o: other users can write to it", info.Mode().Perm())
	}
	if err != nil {
		dir.Close()
		return nil, fmt.Errorf("open the snapshot of the code %q: %w", path, err)
	}
	return dir, nil
}

// descriptorPath returns a path of an open directory. A child of this process can change to it
// even if the directory is moved or replaced. Without /proc, descriptorPath returns the path
// with which the directory was opened.
func descriptorPath(dir *os.File) string {
	path := fmt.Sprintf("/proc/self/fd/%d", dir.Fd())
	held, err := dir.Stat()
	if err != nil {
		return dir.Name()
	}
	if current, err := os.Stat(path); err != nil || !os.SameFile(held, current) {
		return dir.Name()
	}
	return path
}
