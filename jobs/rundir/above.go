package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
	"github.com/ddpbatch/ddpbatch/jobs"
)

// An Exposure is a directory above a run directory, or a symbolic link in its path. Its owner or its mode
// lets other users replace the run directory with another one.
type Exposure struct {
	Path   string
	Owner  int
	Group  int
	Mode   fs.FileMode
	Anyone bool // whether every user can do it, not only the owner or the group

	foreign bool // whether the owner is neither root nor this user
}

// Exposures returns the directories above path that let other users replace the file or
// directory at path, outermost first. It also checks symbolic links and their targets, and skips
// directories that it cannot read. The rules follow StrictModes of OpenSSH, with two exceptions: a
// directory may be writable by the user's private group, and a sticky directory of root or the user
// may be writable by everyone.
// Exposures does not read access control lists. The mode contains only their mask.
func Exposures(path string) []Exposure {
	all, _ := exposures(path)
	return all
}

// IsExposed reports whether other users can replace the directory. It returns true if a directory above
// it is missing or unreadable: another user may have moved that directory away for a moment.
func (d Dir) IsExposed() bool {
	all, complete := exposures(d.Path)
	return len(all) > 0 || !complete
}

// exposures implements [Exposures]. complete is false if it has skipped a directory.
func exposures(path string) (all []Exposure, complete bool) {
	dirs, err := safefile.Above(path)
	complete = err == nil
	var seen []fs.FileInfo
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if err != nil {
			complete = false
			continue
		}
		if slices.ContainsFunc(seen, func(other fs.FileInfo) bool { return os.SameFile(info, other) }) {
			continue
		}
		seen = append(seen, info)
		examine := exposureOf
		if info.Mode()&fs.ModeSymlink != 0 {
			examine = exposureOfLink
		}
		if e, ok := examine(dir, info); ok {
			all = append(all, e)
		}
	}
	return all, complete
}

// exposureOfLink returns the exposure by a symbolic link. Its owner can replace it if other users can
// create files in the directory around it, even with the sticky bit.
func exposureOfLink(path string, info fs.FileInfo) (e Exposure, ok bool) {
	owner, known := safefile.Owner(info)
	around, err := os.Stat(filepath.Dir(path))
	if !known || !isForeign(owner) || err == nil && around.Mode().Perm()&0o022 == 0 {
		return e, false
	}
	return Exposure{Path: path, Owner: owner, Group: groupOf(info), Mode: info.Mode(), foreign: true}, true
}

// resolve follows the symbolic links in the part of dir that exists.
func resolve(dir string) string {
	for {
		to, err := filepath.EvalSymlinks(dir)
		if err == nil {
			return to
		}
		if dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

func exposureOf(dir string, info fs.FileInfo) (e Exposure, ok bool) {
	owner, known := safefile.Owner(info)
	if !known {
		return e, false
	}
	e = Exposure{Path: dir, Owner: owner, Group: groupOf(info), Mode: info.Mode(), foreign: isForeign(owner)}
	sticky := info.Mode()&fs.ModeSticky != 0
	// The sticky bit does not restrict the owner of the directory.
	e.Anyone = info.Mode().Perm()&0o002 != 0 && (!sticky || e.foreign)
	byGroup := info.Mode().Perm()&0o020 != 0 && !sticky && !safefile.IsPrivateGroup(e.Group)
	return e, e.Anyone || e.foreign || byGroup
}

// isForeign reports whether uid is neither root nor this user. In a user namespace, the kernel
// shows all unmapped users as one ID, which can stand for root.
func isForeign(uid int) bool {
	return !safefile.IsTrusted(uid) && uid != safefile.OverflowUser()
}

// groupOf returns the group ID of a file or directory, or -1 if the system does not provide
// it.
func groupOf(info fs.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Gid)
	}
	return -1
}

// String returns who can replace the run directory, and why.
func (e Exposure) String() string {
	mode := "mode " + safefile.Octal(e.Mode)
	switch {
	case e.Mode&fs.ModeSymlink != 0:
		return fmt.Sprintf("user %d can replace it, because the symbolic link %q belongs to that user", e.Owner, e.Path)
	case e.Anyone && e.foreign:
		return fmt.Sprintf("every user can replace it, because %q belongs to user %d and is writable by everybody (%s)", e.Path, e.Owner, mode)
	case e.Anyone:
		return fmt.Sprintf("every user can replace it, because %q is writable by everybody and has no sticky bit (%s)", e.Path, mode)
	case e.foreign:
		return fmt.Sprintf("user %d can replace it, because %q belongs to that user (%s)", e.Owner, e.Path, mode)
	}
	return fmt.Sprintf("members of group %d can replace it, because %q is writable by that group (%s)", e.Group, e.Path, mode)
}

// Hint returns a command or a flag that removes the exposure.
func (e Exposure) Hint() string {
	change := "`chmod +t " + jobs.ShellQuote(e.Path) + "`"
	switch {
	case e.foreign:
		return "choose a different directory with --run-dir"
	case e.Owner == os.Geteuid() && e.Anyone:
		return "run `chmod o-w " + jobs.ShellQuote(e.Path) + "`, or choose a different directory with --run-dir"
	case e.Owner == os.Geteuid():
		return "run " + change + ", or choose a different directory with --run-dir"
	}
	return "ask an administrator to run " + change + ", or choose a different directory with --run-dir"
}

// CheckParent returns an error if another user may have prepared the parent of a new directory, such as a
// run directory, or the innermost directory above it that exists. This is the case below a public directory,
// such as /tmp, if the parent is reached through a link of another user, or if it belongs to another user
// and is not writable for a group of this user. Such a directory can be writable for this user through an
// access control list, which CheckParent does not read.
func CheckParent(parent string) error {
	if err := CheckLinks(filepath.Join(parent, "new")); err != nil {
		return err
	}
	return checkParent(parent)
}

func checkParent(parent string) error {
	info, err := os.Stat(parent)
	if errors.Is(err, fs.ErrNotExist) {
		return checkParent(filepath.Dir(parent)) // the directory in which parent will be created
	}
	if err != nil {
		return err
	}
	if e, _ := exposureOf(parent, info); e.foreign && safefile.CreatorsOf(info) != safefile.SharedGroup && isPrepared(resolve(parent)) {
		return hints.Errorf("create the directory yourself, or choose a different directory with --run-dir", "%s", e)
	}
	return nil
}

// isPrepared reports whether a directory, or one above it, belongs to another user and is in a public
// directory. dir has no links.
func isPrepared(dir string) bool {
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		info, err := os.Lstat(dir)
		around, aroundErr := os.Stat(filepath.Dir(dir))
		if err != nil || aroundErr != nil {
			return true // another user may have moved it away for a moment
		}
		if owner, known := safefile.Owner(info); known && isForeign(owner) && isPublic(around) {
			return true
		}
	}
	return false
}

// PreparedAbove returns the outermost directory above path that another user owns in a public directory, such as
// /tmp. That user can replace the file or directory at path. [CheckParent] accepts the directory if it is
// writable for a group of this user, or if the innermost directory above path belongs to this user: both are
// common for the directories of projects.
func PreparedAbove(path string) (e Exposure, ok bool) {
	dirs, _ := safefile.Above(path) // a missing name is an error of the check before
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		around, aroundErr := os.Stat(filepath.Dir(dir))
		if err != nil || aroundErr != nil || !info.IsDir() || !isPublic(around) {
			continue
		}
		if e, ok := exposureOf(dir, info); ok && e.foreign {
			return e, true
		}
	}
	return e, false
}

// CheckLinks returns an error if a link of another user leads to the file or directory at path, and the link
// is in a directory in which every user can create files, such as /tmp, or in a directory that this user has
// prepared there. Its owner can replace it at any time.
func CheckLinks(path string) error {
	for _, entry := range publicEntries(path) {
		if entry.info != nil && entry.info.Mode()&fs.ModeSymlink != 0 && entry.isForeign() {
			owner, _ := safefile.Owner(entry.info)
			e := Exposure{Path: entry.path, Owner: owner, Mode: entry.info.Mode(), foreign: true}
			return hints.Errorf("name the target of the link instead, or choose a different directory with --run-dir", "%s", e)
		}
	}
	return nil
}

// CanOthersCreate reports whether other users may be able to create a missing file or directory at path, or
// to replace a directory above it. Another user can move a directory of their own away for a moment, so a
// directory that is missing in a public directory counts as one of another user.
func CanOthersCreate(path string) bool {
	return len(Exposures(path)) > 0 || slices.ContainsFunc(publicEntries(path), publicEntry.isForeign)
}

// A publicEntry is a name in a directory in which every user can create files, or which another user has
// prepared in such a directory.
type publicEntry struct {
	path string
	info fs.FileInfo // nil if the name is missing
}

// isForeign reports whether another user owns the entry or can create it.
func (e publicEntry) isForeign() bool {
	if e.info == nil {
		return true
	}
	owner, known := safefile.Owner(e.info)
	return known && isForeign(owner)
}

// publicEntries returns the names of path, and of the directories and links above it, that are in a
// directory in which every user can create files, with or without the sticky bit, or in a directory that
// [CheckParent] rejects. It reads the attributes of each name only once: in a sticky directory, another user
// can exchange only entries for which isForeign is true.
func publicEntries(path string) (entries []publicEntry) {
	above, _ := safefile.Above(path) // an error is about a name that is missing, which the list contains
	for _, name := range append(above, filepath.Clean(path)) {
		dir := filepath.Dir(name)
		around, err := os.Stat(dir)
		if err != nil || safefile.CreatorsOf(around) != safefile.Anyone && checkParent(dir) == nil || isReadOnly(dir) {
			continue
		}
		info, err := os.Lstat(name)
		if err != nil {
			info = nil
		}
		entries = append(entries, publicEntry{name, info})
	}
	return entries
}

// isPublic reports whether every user can create files in a directory, and replace only their own.
func isPublic(dir fs.FileInfo) bool {
	const public = fs.ModeSticky | 0o002
	return dir.Mode()&public == public
}

// isReadOnly reports whether the file system of a directory is mounted read-only.
func isReadOnly(dir string) bool {
	var stat unix.Statfs_t
	return unix.Statfs(dir, &stat) == nil && stat.Flags&unix.ST_RDONLY != 0
}
