package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"strings"
)

// replacedPrefix is the prefix for the name of an old checkpoint while its replacement is renamed.
const replacedPrefix = tempPrefix + "replaced-"

// replace renames temp to final, the name of a checkpoint. It returns the new name of the old
// checkpoint, if final existed. [List] finds one of the two at any moment. The two are exchanged
// atomically if the file system supports it. Otherwise (NFS, Lustre) the old one gets a temporary
// name, under which List finds it until the new one exists.
func replace(root *os.Root, temp, final string) (replaced string, err error) {
	if _, err := root.Lstat(final); errors.Is(err, fs.ErrNotExist) {
		return "", root.Rename(temp, final)
	}
	if exchange(root, temp, final) == nil {
		return temp, nil
	}
	waiting := replacedPrefix + final
	if err := root.RemoveAll(waiting); err != nil {
		return "", err
	}
	if err := root.Rename(final, waiting); err != nil {
		return "", err
	}
	if err := root.Rename(temp, final); err != nil {
		return "", errors.Join(err, root.Rename(waiting, final))
	}
	return waiting, nil
}

// replacementOf returns the name of the checkpoint whose old version has the name waiting, and
// whether that old version is still needed because the new one does not exist. lstat returns the
// attributes of a name in their directory.
func replacementOf(lstat func(name string) (fs.FileInfo, error), waiting string) (name string, ok bool) {
	name, ok = strings.CutPrefix(waiting, replacedPrefix)
	if !ok {
		return "", false
	}
	_, err := lstat(name)
	return name, errors.Is(err, fs.ErrNotExist)
}
