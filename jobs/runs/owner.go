package runs

import (
	"io/fs"
	"os"

	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

// IsOwn reports whether the file at path belongs to this user.
func IsOwn(path string) bool {
	info, err := os.Stat(path)
	return err == nil && isOwnFile(info)
}

// isOwnEntry is like IsOwn, but a symbolic link must also belong to the user, like the file
// that it points to.
func isOwnEntry(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && isOwnFile(info) && IsOwn(path)
}

func isOwnFile(info fs.FileInfo) bool {
	uid, ok := safefile.Owner(info)
	return ok && uid == os.Geteuid()
}

// isForeignLink reports whether a symbolic link exists at path that belongs to neither this user nor root.
func isForeignLink(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return false
	}
	uid, ok := safefile.Owner(info)
	return ok && !safefile.IsTrusted(uid)
}

// entryExists reports whether an entry of any type exists at path.
func entryExists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// IsSameDir reports whether two paths name the same directory.
func IsSameDir(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}
