package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/ddpbatch/ddpbatch/internal/atomicfile"
)

// createFile atomically writes a file at a path that the user gave. It replaces a symbolic
// link instead of writing to its target. Without force, it returns [fs.ErrExist] if path
// exists. The umask applies to mode.
func createFile(path string, mode fs.FileMode, force bool, write func(io.Writer) error) error {
	// A rename would also replace a device, such as /dev/null.
	if info, err := os.Lstat(path); force && err == nil && !info.Mode().IsRegular() && info.Mode()&fs.ModeSymlink == 0 {
		return fmt.Errorf("%q is not a regular file", path)
	}
	return atomicfile.Write(path, atomicfile.Options{Perm: mode, New: !force}, write)
}
