package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// replacedPrefix is the prefix for the name of an old checkpoint while its replacement is renamed.
const replacedPrefix = tempPrefix + "replaced-"

// replace renames dir to final, the path of a checkpoint. It returns the new path of the old
// checkpoint, if final existed. [List] finds one of the two at any moment. The two are exchanged
// atomically if the file system supports it. Otherwise (NFS, Lustre) the old one gets a temporary
// name, under which List finds it until the new one exists.
func replace(dir, final string) (replaced string, err error) {
	if _, err := os.Lstat(final); errors.Is(err, fs.ErrNotExist) {
		return "", os.Rename(dir, final)
	}
	if exchange(dir, final) == nil {
		return dir, nil
	}
	waiting := filepath.Join(filepath.Dir(final), replacedPrefix+filepath.Base(final))
	if err := os.RemoveAll(waiting); err != nil {
		return "", err
	}
	if err := os.Rename(final, waiting); err != nil {
		return "", err
	}
	if err := os.Rename(dir, final); err != nil {
		return "", errors.Join(err, os.Rename(waiting, final))
	}
	return waiting, nil
}

// replacementOf returns the name of the checkpoint whose old version has the name waiting, and
// whether that old version is still needed because the new one does not exist.
func replacementOf(dir, waiting string) (name string, ok bool) {
	name, ok = strings.CutPrefix(waiting, replacedPrefix)
	if !ok {
		return "", false
	}
	_, err := os.Lstat(filepath.Join(dir, name))
	return name, errors.Is(err, fs.ErrNotExist)
}
