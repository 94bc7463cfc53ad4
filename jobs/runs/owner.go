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

// isForeignLink reports whether a directory entry is a symbolic link that belongs to neither this user nor
// root.
func isForeignLink(e fs.DirEntry) bool {
	if e.Type()&fs.ModeSymlink == 0 {
		return false
	}
	info, err := e.Info()
	if err != nil {
		return false // it was removed
	}
	uid, ok := safefile.Owner(info)
	return ok && !safefile.IsTrusted(uid)
}

// isLink reports whether a symbolic link exists at path.
func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
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
