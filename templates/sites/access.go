package sites

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
	"github.com/ddpbatch/ddpbatch/jobs"
)

// ErrWritable means that users other than its owner can change a profile. The lines of a
// profile run as the user who submits a job.
var ErrWritable = errors.New("other users can change the profile")

// readProfile reads the profile at path. It returns an error that wraps [ErrWritable], with a
// hint, if every user, or members of a group of this user, can change or replace the file. See
// ARCHITECTURE.md for the accepted permissions. It returns only a warning if they can write to
// jobDir, the directory of the job file, to a directory above it, or to the job file, because they
// can change the job anyway. If jobDir is empty, the profile was found by its name, see
// [checkCreator].
func readProfile(path, jobDir, jobFile string) (src []byte, warning error, err error) {
	f, err := safefile.Open(path, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	warning, err = checkWriters(f, path, jobDir, jobFile)
	if err == nil && jobDir == "" {
		err = checkCreator(f, path)
	}
	if err != nil {
		return nil, nil, err
	}
	src, err = safefile.ReadAll(f, path, maxProfile)
	return src, warning, err
}

// checkWriters returns an error or a warning if users other than the owner can change an open
// profile, or can replace it because they can write to a directory above it. Both list the
// files and directories whose permissions must change.
func checkWriters(f *os.File, path, jobDir, jobFile string) (warning, err error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	type place struct {
		path string
		info fs.FileInfo
	}
	places := []place{{path, info}}
	dirs, err := safefile.Above(path)
	if err != nil {
		return nil, err
	}
	for _, dir := range slices.Backward(dirs) {
		info, err := os.Stat(dir)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(places, func(p place) bool { return os.SameFile(p.info, info) }) {
			places = append(places, place{dir, info})
		}
	}
	var jobDirs []string
	if jobDir != "" {
		jobDirs, _ = safefile.Above(filepath.Join(jobDir, "job")) // a missing directory grants nothing
	}
	// In the directory of the profile, a new file could be another profile, so the sticky bit is
	// not sufficient.
	parents := []string{filepath.Dir(path)}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		parents = append(parents, filepath.Dir(target))
	}
	rejected := false
	var who []string
	var commands []string
	for _, p := range places {
		writers := safefile.WritersOf(p.info)
		if writers == safefile.SharedGroup && isRoot(info) && isRoot(p.info) {
			continue // root owns the profile and has selected the group
		}
		withJob := slices.Contains(jobDirs, p.path) ||
			p.path == path && filepath.Dir(path) == filepath.Clean(jobDir) && max(writersOf(jobDir), writersOf(jobFile)) >= writers
		if writers != safefile.OwnerOnly && (!withJob || writers == safefile.Anyone && p.path == path) {
			rejected = true
		}
		name, mode := fmt.Sprintf("%q (mode %s)", p.path, safefile.Octal(p.info.Mode())), "g-w"
		if p.path != path {
			name += fmt.Sprintf(", a directory above %q", filepath.Base(path))
		}
		switch writers {
		case safefile.OwnerOnly:
			continue
		case safefile.SharedGroup:
			who = append(who, "members of the group can write to "+name)
		default:
			who, mode = append(who, "every user can write to "+name), "go-w"
		}
		if p.path != path && !slices.Contains(parents, p.path) {
			mode = "+t" // others may create files in it, for example in a project directory
		}
		commands = append(commands, fmt.Sprintf("`chmod %s %s`", mode, jobs.ShellQuote(p.path)))
	}
	if len(who) == 0 {
		return nil, nil
	}
	err = hints.Errorf("have the owner run "+strings.Join(commands, " and ")+
		", or copy the profile to a directory that only you can write to",
		"%w: %s", ErrWritable, strings.Join(who, "; "))
	if rejected {
		return nil, err
	}
	return err, nil
}

// writersOf returns the users who can change a file or the files of a directory. It returns
// [safefile.OwnerOnly] if the path does not exist.
func writersOf(path string) safefile.Writers {
	info, err := os.Stat(path)
	if err != nil {
		return safefile.OwnerOnly
	}
	return safefile.WritersOf(info)
}

// checkCreator returns an error if other users can create files in the directory of a profile, and
// one of them may have created the profile. It is for a profile that was found by its name. Such a
// profile could replace an included profile, or a profile in a later directory. The owner of the
// directory, this user, and root may create profiles.
func checkCreator(f *os.File, path string) error {
	dir, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return err
	}
	who := "every user can"
	switch safefile.CreatorsOf(dir) {
	case safefile.OwnerOnly:
		return nil
	case safefile.SharedGroup:
		who = "members of the group can"
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	link, err := os.Lstat(path)
	if err != nil {
		return err
	}
	trusted, _ := safefile.Owner(dir)
	for _, entry := range []fs.FileInfo{link, info} {
		owner, known := safefile.Owner(entry)
		if known && !safefile.IsTrusted(owner) && owner != trusted {
			return hints.Errorf(fmt.Sprintf("have the owner of the directory remove the profile, and run `chmod go-w %s`", jobs.ShellQuote(filepath.Dir(path))),
				"%w: %s create profiles in the directory of %q (mode %s), and user %d has created it", ErrWritable, who, path, safefile.Octal(dir.Mode()), owner)
		}
	}
	return nil
}

func isRoot(info fs.FileInfo) bool {
	owner, ok := safefile.Owner(info)
	return ok && owner == 0
}
