package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/ddpbatch/ddpbatch/internal/atomicfile"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
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

// maxText is the maximum size in bytes of a text file that the user names. Batch scripts and
// profiles have a few kilobytes.
const maxText = 1 << 20

// readText returns the content of a text file that the user names. The file can be a pipe of this
// user, such as <(command) of a shell.
func readText(path string) ([]byte, error) {
	f, err := safefile.OpenNamed(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxText+1))
	if err == nil && len(text) > maxText {
		err = fmt.Errorf("read %q: larger than %d KiB", path, maxText>>10)
	}
	return text, err
}
