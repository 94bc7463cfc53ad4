package safefile

import (
	"io/fs"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Writers describes the users, apart from the owner and root, who can change a file or replace
// the files of a directory.
type Writers int

// The values of Writers, in increasing number of users.
const (
	OwnerOnly   Writers = iota
	SharedGroup         // members of a group that this user is in
	Anyone
)

// WritersOf returns the users who can change a file or replace the files of a directory.
//
// A group counts only if this user is in it: a group without this user was chosen by the
// owner, and is as trusted as the owner. The private group of this user does not count:
// many systems have a group for each user, and a umask that lets it write. An access control
// list counts only through its mask, which is part of the mode. For a directory with the sticky
// bit, the result is OwnerOnly.
func WritersOf(info fs.FileInfo) Writers {
	if info.IsDir() && info.Mode()&fs.ModeSticky != 0 {
		return OwnerOnly
	}
	return CreatorsOf(info)
}

// CreatorsOf returns the users who can create files in a directory. Unlike [WritersOf], it ignores the
// sticky bit.
func CreatorsOf(info fs.FileInfo) Writers {
	perm := info.Mode().Perm()
	switch {
	case perm&0o002 != 0:
		return Anyone
	case perm&0o020 != 0 && isShared(info):
		return SharedGroup
	}
	return OwnerOnly
}

// isShared reports whether this user shares the group of a file with other users.
func isShared(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(stat.Gid) == overflowID("gid") {
		return false
	}
	gid := int(stat.Gid)
	groups, err := os.Getgroups()
	member := err == nil && slices.Contains(groups, gid) || gid == os.Getegid()
	return member && !IsPrivateGroup(gid)
}

// IsPrivateGroup reports whether a group is the private group of this user: the primary group, with
// the name of the user. It does not read the members of the group.
func IsPrivateGroup(gid int) bool {
	if gid != os.Getegid() {
		return false
	}
	var userName, groupName string
	if u, err := user.LookupId(strconv.Itoa(os.Geteuid())); err == nil {
		userName = u.Username
	}
	if g, err := user.LookupGroupId(strconv.Itoa(gid)); err == nil {
		groupName = g.Name
	}
	return isPrivate(os.Geteuid(), gid, userName, groupName)
}

// isPrivate reports whether a primary group is the private group of a user. The IDs count only for a
// group without a name, for example in a container: a shared group can have the ID of a user.
func isPrivate(uid, gid int, userName, groupName string) bool {
	if groupName == "" {
		return uid == gid
	}
	return userName == groupName
}

// OverflowUser returns the user ID that the kernel reports for users without a mapping in the user
// namespace, for example in a container.
func OverflowUser() int { return overflowID("uid") }

// overflowID returns the overflow ID of users ("uid") or groups ("gid").
func overflowID(kind string) int {
	text, err := os.ReadFile("/proc/sys/kernel/overflow" + kind)
	if err == nil {
		if id, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			return id
		}
	}
	return 65534 // the default
}

// Octal formats a mode for chmod, such as 2775.
func Octal(mode fs.FileMode) string {
	bits := uint64(mode.Perm())
	for flag, bit := range map[fs.FileMode]uint64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if mode&flag != 0 {
			bits |= bit
		}
	}
	return strconv.FormatUint(1<<12|bits, 8)[1:]
}
