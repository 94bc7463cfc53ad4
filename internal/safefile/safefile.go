// Package safefile opens and reads files in directories that other users can write to.
//
// Another user may replace an expected file with a FIFO, whose reader waits for a writer; a file
// with a lease, on which open waits for 45 seconds; a device without an end; a symbolic link to
// a private file; or a file that is too large for memory. [Open] and [Read] return an error in
// these cases, and never wait for a process of another user. They follow a symbolic link unless
// the caller passes [NoFollow]. [OpenNamed] also opens pipes of this user.
//
// The checks apply to the open file, so the file cannot be exchanged between the check and
// the read. Functions whose names end in In open a name below an open directory, which cannot be
// exchanged either.
//
// [CheckOwner] and [CheckPrivate] check the owner and the mode of an open file, [WritersOf]
// (writers.go) returns which other users can change it, and [Above] (above.go) returns the directories
// in which they could replace it. Except for the links in [OpenOwnersRoot],
// the caller decides which users it trusts. The package does not write files.
package safefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// NoFollow is a flag for [Open] and [Read]: if the last element of the path is a symbolic
// link, they return [ErrLink]. Links in the directories above are followed.
const NoFollow = unix.O_NOFOLLOW

// Errors that [Open] and [Read] wrap, with the path, in a [*fs.PathError].
var (
	ErrNotRegular = errors.New("not a regular file")
	ErrLink       = errors.New("is a symbolic link")
	ErrTooLarge   = errors.New("file is too large")
	ErrLeased     = errors.New("another process holds a lease on the file")
)

// Open opens the regular file at path for reading. Flags is 0 or [NoFollow]. Errors are
// of type [*fs.PathError].
func Open(path string, flags int) (*os.File, error) {
	return open(path, func() (*os.File, error) {
		return waitForLease(
			func() (*os.File, error) { return os.OpenFile(path, readFlags|flags, 0) },
			func() (fs.FileInfo, error) { return os.Stat(path) })
	})
}

// OpenNamed opens a file that the user named on the command line. Unlike [Open], it also opens pipes and devices of
// this user and root, such as /dev/stdin and a shell's <(command), and waits for the writer of a pipe.
func OpenNamed(path string) (*os.File, error) {
	// Opening a pipe and closing it again would end its writer, so the check comes first.
	info, err := os.Stat(path)
	if err != nil || info.Mode().IsRegular() {
		return Open(path, 0)
	}
	if owner, ok := Owner(info); ok && !IsTrusted(owner) && !isDescriptor(path) {
		return Open(path, 0)
	}
	return os.Open(path)
}

// isDescriptor reports whether a path names a descriptor of this process. The process that started it, such as sudo,
// can belong to another user.
func isDescriptor(path string) bool {
	return path == "/dev/stdin" || strings.HasPrefix(path, "/dev/fd/") || strings.HasPrefix(path, "/proc/self/fd/")
}

// OpenIn opens a file like [Open], by its name in an open directory. The result is always below the
// directory: links that lead outside are errors.
func OpenIn(root *os.Root, name string, flags int) (*os.File, error) {
	return OpenFileIn(root, name, readFlags|flags, 0)
}

// OpenFileIn opens a file like [OpenIn], with the flags and the mode of [os.OpenFile]. The open file is
// nonblocking.
func OpenFileIn(root *os.Root, name string, flags int, perm fs.FileMode) (*os.File, error) {
	flags |= unix.O_NONBLOCK | unix.O_NOCTTY
	openFile := root.OpenFile
	if flags&NoFollow != 0 && filepath.IsLocal(name) { // a Root rejects all other names
		openFile = func(name string, flags int, perm fs.FileMode) (*os.File, error) {
			return openNoFollow(root, filepath.Clean(name), flags, perm)
		}
	}
	return open(name, func() (*os.File, error) {
		return waitForLease(
			func() (*os.File, error) { return openFile(name, flags, perm) },
			func() (fs.FileInfo, error) { return root.Stat(name) })
	})
}

// openNoFollow opens a name below an open directory. A Root would follow a link in the last element of
// the name, because it ignores O_NOFOLLOW.
func openNoFollow(root *os.Root, name string, flags int, perm fs.FileMode) (*os.File, error) {
	dir, err := root.Open(filepath.Dir(name) + itself)
	if err != nil {
		return nil, withPath(err, name)
	}
	defer dir.Close()
	for {
		fd, err := unix.Openat(int(dir.Fd()), filepath.Base(name), flags|unix.O_CLOEXEC, uint32(perm.Perm()))
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), filepath.Join(root.Name(), name)), nil
		case err != unix.EINTR:
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
	}
}

// OpenRoot opens the directory at path like [os.OpenRoot], which would wait at a FIFO.
func OpenRoot(path string) (*os.Root, error) {
	root, err := os.OpenRoot(path + itself)
	return root, withPath(err, path)
}

// OpenOwnersRoot opens the directory at path like [OpenRoot], but rejects a link with which another
// user redirects reads to a directory of this user. In a directory of another user, the link and its
// target must belong to that user. In a directory of this user or root, the link must belong to this
// user, to root, or to the owner of its target.
func OpenOwnersRoot(path string) (*os.Root, error) {
	root, err := OpenRoot(path)
	if err != nil {
		return nil, err
	}
	if err := checkLink(path, root); err != nil {
		root.Close()
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return root, nil
}

// checkLink returns an error if the open directory was reached through a link that
// [OpenOwnersRoot] rejects.
func checkLink(path string, root *os.Root) error {
	opened, err := root.Stat(".")
	if err != nil {
		return err
	}
	link, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if os.SameFile(opened, link) {
		return nil
	}
	around, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return err
	}
	parent, _ := Owner(around)
	owner, _ := Owner(link)
	target, _ := Owner(opened)
	if owner == target && owner == parent || IsTrusted(parent) && (IsTrusted(owner) || owner == target) {
		return nil
	}
	return fmt.Errorf("%w to a directory of a different user", ErrLink)
}

// OpenRootIn opens a directory like [os.Root.OpenRoot], which would wait at a FIFO.
func OpenRootIn(root *os.Root, name string) (*os.Root, error) {
	below, err := root.OpenRoot(name + itself)
	return below, withPath(err, name)
}

// ReadDirIn returns the entries of a directory in an open directory, sorted by name. Unlike
// [fs.ReadDir], it does not wait at a FIFO.
func ReadDirIn(root *os.Root, name string) ([]fs.DirEntry, error) {
	return ReadSomeIn(root, name, math.MaxInt)
}

// ReadSomeIn returns at most limit entries of a directory in an open directory, sorted by name. A
// directory of another user can have any number of entries; which of them are returned is then
// undefined.
func ReadSomeIn(root *os.Root, name string, limit int) ([]fs.DirEntry, error) {
	f, err := root.Open(name + itself)
	if err != nil {
		return nil, withPath(err, name)
	}
	defer f.Close()
	var entries []fs.DirEntry
	for len(entries) < limit {
		some, err := f.ReadDir(min(limit-len(entries), 1024))
		entries = append(entries, some...)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return entries, withPath(err, name)
		}
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// itself is the suffix for the path of a directory. With it, the kernel rejects a FIFO instead of
// opening it.
const itself = "/."

// withPath replaces the path in an error.
func withPath(err error, path string) error {
	var where *fs.PathError
	if errors.As(err, &where) {
		return &fs.PathError{Op: where.Op, Path: path, Err: where.Err}
	}
	return err
}

// readFlags are the flags of all opens. With O_NONBLOCK, opening a FIFO or a leased file does not
// wait. For reads of regular files the flag has no effect.
const readFlags = os.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY

// maxLeaseDelay limits the wait for a lease on a file of this user. An NFS client returns its
// delegation within milliseconds, unless it is down.
const maxLeaseDelay = 5 * time.Second

// leaseInterval is the time between two attempts to open a file with a lease.
const leaseInterval = 20 * time.Millisecond

// waitForLease calls open, which opens a file with O_NONBLOCK. If the file has a lease, it
// calls open again for up to 5 seconds, provided that the file belongs to this user or to
// root: only the owner and root can set a lease. The first call has made the kernel break
// the lease. On an NFS server, the delegations of clients are leases.
func waitForLease(open func() (*os.File, error), stat func() (fs.FileInfo, error)) (*os.File, error) {
	for end := time.Now().Add(maxLeaseDelay); ; time.Sleep(leaseInterval) {
		f, err := open()
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(end) {
			return f, err
		}
		info, statErr := stat()
		if statErr != nil {
			return nil, err
		}
		if owner, ok := Owner(info); !ok || !IsTrusted(owner) {
			return nil, err
		}
	}
}

func open(path string, open func() (*os.File, error)) (*os.File, error) {
	f, err := open()
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, &fs.PathError{Op: "open", Path: path, Err: ErrLink}
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, &fs.PathError{Op: "open", Path: path, Err: ErrLeased}
	case errors.Is(err, unix.ENXIO): // a socket, or a device without hardware
		return nil, &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular}
	case err != nil:
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = &fs.PathError{Op: "open", Path: path, Err: unix.EISDIR}
	} else if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("%w, but %s", ErrNotRegular, Kind(info.Mode()))}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// DescriptorPath returns a path with which a child of this process can start in an open directory, even
// if it was moved and another directory is at its path. It returns false without /proc.
func DescriptorPath(dir *os.File) (path string, ok bool) {
	path = fmt.Sprintf("/proc/self/fd/%d", dir.Fd())
	opened, err := dir.Stat()
	if err != nil {
		return "", false
	}
	current, err := os.Stat(path)
	return path, err == nil && os.SameFile(opened, current)
}

// Kind names the type of a special file for messages: "a pipe", "a socket", "a device".
func Kind(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "a pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "something else"
}

// Read returns the content of the regular file at path. Flags is 0 or [NoFollow]. A file
// with more than limit bytes is an error that wraps [ErrTooLarge].
func Read(path string, limit int64, flags int) ([]byte, error) {
	f, err := Open(path, flags)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadAll(f, path, limit)
}

// ReadIn reads a file like [Read], by its name in an open directory.
func ReadIn(root *os.Root, name string, limit int64, flags int) ([]byte, error) {
	f, err := OpenIn(root, name, flags)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadAll(f, name, limit)
}

// ReadAll returns the content of a file that [Open] has opened, with the limit of [Read]. path is
// for messages.
func ReadAll(f *os.File, path string, limit int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > limit {
		return nil, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)}
	}
	return text, nil
}

// CheckPrivate returns an error unless the file or directory belongs to the user of this process
// and its mode grants access to no other user.
func CheckPrivate(info fs.FileInfo) error {
	if err := CheckOwner(info); err != nil {
		return err
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 {
		return fmt.Errorf("mode is %04o: other users have access", perm)
	}
	return nil
}

// CheckOwner returns an error unless the file or directory belongs to the user of this
// process.
func CheckOwner(info fs.FileInfo) error {
	if owner, ok := Owner(info); !ok || owner != os.Geteuid() {
		return fmt.Errorf("belongs to user %d, and this is user %d", owner, os.Geteuid())
	}
	return nil
}

// Owner returns the user ID of the owner of a file or directory. It reports false if the
// file system has no owners.
func Owner(info fs.FileInfo) (uid int, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return -1, false
	}
	return int(stat.Uid), true
}

// IsTrusted reports whether uid is root or the user of this process.
func IsTrusted(uid int) bool { return uid == 0 || uid == os.Geteuid() }
