package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/ddpbatch/ddpbatch/internal/atomicfile"
)

// createFile writes a file that the user names, atomically. If path is a symbolic link, the
// file replaces the link; the file that the link names does not change. Without force,
// createFile returns [fs.ErrExist] if path exists. The umask applies to mode.
func createFile(path string, mode fs.FileMode, force bool, write func(io.Writer) error) error {
	// A rename would also replace a device, such as /dev/null.
	if info, err := os.Lstat(path); force && err == nil && !info.Mode().IsRegular() && info.Mode()&fs.ModeSymlink == 0 {
		return fmt.Errorf("%q is not a regular file", path)
	}
	return atomicfile.Write(path, atomicfile.Options{Perm: mode, New: !force}, write)
}
