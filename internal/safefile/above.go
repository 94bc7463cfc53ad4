package safefile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Above returns the directories that determine which file is at path, outermost first: the directories
// above path and, if path or one of them is a symbolic link, above the target of the link. Links to
// directories are in the list, and so are their targets.
//
// The error reports the first name that is missing or cannot be read. The list then has the other
// directories.
func Above(path string) (dirs []string, err error) {
	visited := map[string]bool{}
	var visit func(path string, isDir bool)
	visit = func(path string, isDir bool) {
		if dir := filepath.Dir(path); dir != path {
			visit(dir, true)
		}
		if visited[path] {
			return
		}
		visited[path] = true
		target, linkErr := os.Readlink(path)
		switch {
		case linkErr == nil:
			at := filepath.Dir(path)
			if filepath.IsAbs(target) {
				at = "/"
			}
			for name := range strings.SplitSeq(target, "/") {
				if name == ".." { // follows a link before it, unlike in filepath.Join
					visit(at, true)
					real, resolveErr := filepath.EvalSymlinks(at)
					if resolveErr != nil {
						err = errors.Join(err, resolveErr)
						break
					}
					at = real
				}
				at = filepath.Join(at, name)
			}
			visit(at, isDir)
		case !errors.Is(linkErr, unix.EINVAL) && err == nil: // EINVAL means that it is not a link
			err = linkErr
		}
		if isDir {
			dirs = append(dirs, path)
		}
	}
	visit(filepath.Clean(path), false)
	return dirs, err
}
