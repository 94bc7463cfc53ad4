package sites

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

// ErrWritable is a profile that users other than its owner can change. The lines of a
// profile run as the user who submits a job.
var ErrWritable = errors.New("other users can change the profile")

// readProfile reads the profile at path. It returns an error that wraps [ErrWritable], with
// a hint, in two cases: every user can change the file, or members of a group that this
// user is in. See ARCHITECTURE.md for what is accepted. If the profile is in the directory
// of the job file, jobDir, a group is accepted with a warning: the members can change the
// job file as well.
func readProfile(path, jobDir string) (src []byte, warning error, err error) {
	f, err := safefile.Open(path, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	writers, err := checkWriters(f, path)
	if writers == safefile.SharedGroup && filepath.Dir(path) == filepath.Clean(jobDir) {
		warning, err = err, nil
	}
	if err != nil {
		return nil, nil, err
	}
	src, err = safefile.ReadAll(f, path, maxProfile)
	return src, warning, err
}

// checkWriters returns who can change an open profile, apart from its owner. If others can,
// the error describes the file and the directory that are to be changed.
func checkWriters(f *os.File, path string) (safefile.Writers, error) {
	info, err := f.Stat()
	if err != nil {
		return safefile.OwnerOnly, err
	}
	type place struct {
		path string
		info fs.FileInfo
	}
	places := []place{{path, info}}
	dirs := []string{filepath.Dir(path)}
	if target, err := filepath.EvalSymlinks(path); err == nil && filepath.Dir(target) != dirs[0] {
		dirs = append(dirs, filepath.Dir(target))
	}
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err == nil {
			places = append(places, place{dir, info})
		}
	}
	most := safefile.OwnerOnly
	var who []string
	var commands []string
	for _, p := range places {
		writers := safefile.WritersOf(p.info)
		if owner, ok := safefile.Owner(p.info); ok && owner == 0 && writers == safefile.SharedGroup {
			continue // root has chosen the group
		}
		most = max(most, writers)
		name, mode := fmt.Sprintf("%q (mode %s)", p.path, safefile.Octal(p.info.Mode())), "g-w"
		if p.path != path {
			name += fmt.Sprintf(", the directory of %q", filepath.Base(path))
		}
		switch writers {
		case safefile.OwnerOnly:
			continue
		case safefile.SharedGroup:
			who = append(who, "members of the group can write to "+name)
		default:
			who, mode = append(who, "every user can write to "+name), "go-w"
		}
		commands = append(commands, fmt.Sprintf("`chmod %s %s`", mode, p.path))
	}
	if most == safefile.OwnerOnly {
		return most, nil
	}
	return most, hints.Errorf("have the owner run "+strings.Join(commands, " and ")+
		", or copy the profile to a directory that only you can write to",
		"%w: %s", ErrWritable, strings.Join(who, "; "))
}
