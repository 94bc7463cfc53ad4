package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// replacedPrefix begins the name of a checkpoint that waits for the one in its place.
const replacedPrefix = tempPrefix + "replaced-"

// replace renames a folder to where a checkpoint may be, which is returned under the
// name that it has then. At every moment one of the two is found by [List]: they are
// exchanged, or where the file system cannot do that (NFS, Lustre) the old one waits
// under a name by which it is found as long as there is no other.
func replace(folder, final string) (replaced string, err error) {
	if _, err := os.Lstat(final); errors.Is(err, fs.ErrNotExist) {
		return "", os.Rename(folder, final)
	}
	if exchange(folder, final) == nil {
		return folder, nil
	}
	waiting := filepath.Join(filepath.Dir(final), replacedPrefix+filepath.Base(final))
	if err := os.RemoveAll(waiting); err != nil {
		return "", err
	}
	if err := os.Rename(final, waiting); err != nil {
		return "", err
	}
	if err := os.Rename(folder, final); err != nil {
		return "", errors.Join(err, os.Rename(waiting, final))
	}
	return waiting, nil
}

// waitingFor is the name of the checkpoint that a name is that of the old one of, if it
// is needed still.
func waitingFor(dir, waiting string) (name string, ok bool) {
	name, ok = strings.CutPrefix(waiting, replacedPrefix)
	if !ok {
		return "", false
	}
	_, err := os.Lstat(filepath.Join(dir, name))
	return name, errors.Is(err, fs.ErrNotExist)
}
