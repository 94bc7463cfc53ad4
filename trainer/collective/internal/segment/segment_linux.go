package segment

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// abandoned is the minimum age of an unlocked name before it is considered stale. A creator locks
// it in less time.
const abandoned = time.Minute

// create creates a segment of n bytes. It locks the file, so that sweep does not remove it.
func create(name string, n int) (_ *Segment, err error) {
	path := filepath.Join(directory, name)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(path), f.Close())
		}
	}()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	// tmpfs allocates the pages now or returns an error. Older kernels stop if a signal is pending.
	err = unix.Fallocate(int(f.Fd()), 0, 0, int64(n))
	for err == unix.EINTR {
		err = unix.Fallocate(int(f.Fd()), 0, 0, int64(n))
	}
	if err != nil {
		var of unix.Statfs_t
		if unix.Fstatfs(int(f.Fd()), &of) == nil {
			return nil, fmt.Errorf("%w (%d MiB are free)", err, of.Bavail*uint64(of.Bsize)>>20)
		}
		return nil, err
	}
	memory, err := mapping(f, n)
	if err != nil {
		return nil, err
	}
	return &Segment{Name: name, memory: memory, file: f}, nil
}

func open(name string, n int) (*Segment, error) {
	f, err := openExisting(filepath.Join(directory, name))
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	defer f.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		return nil, err
	}
	if stat.Size != int64(n) || !isOwnFile(&stat) {
		return nil, fmt.Errorf("it is not a file of this user with %d bytes", n)
	}
	memory, err := mapping(f, n)
	if err != nil {
		return nil, err
	}
	return &Segment{Name: name, memory: memory}, nil
}

func mapping(f *os.File, n int) ([]byte, error) {
	b, err := unix.Mmap(int(f.Fd()), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	return b, nil
}

// Unlink removes the name. The memory remains allocated as long as it is mapped.
func (s *Segment) Unlink() error {
	if s.file == nil {
		return nil
	}
	err := errors.Join(os.Remove(s.file.Name()), s.file.Close())
	s.file = nil
	return err
}

// Unmap releases the memory, which must not be accessed afterwards.
func (s *Segment) Unmap() error {
	err := s.Unlink()
	b := s.memory
	s.memory = nil
	return errors.Join(err, unix.Munmap(b))
}

// sweep removes the segments in a directory that killed processes of this user left behind. It reads
// at most limit names. It never opens a file of another user: the owner can hold a lease on the file,
// which makes an open wait for up to lease-break-time (45 s), or replace it with a FIFO.
func sweep(directory string, limit int) {
	dir, err := os.Open(directory)
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(limit) // in the order of the file system
	for _, name := range names {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		path := filepath.Join(directory, name)
		var stat unix.Stat_t
		if unix.Lstat(path, &stat) == nil && isOwnFile(&stat) {
			removeAbandoned(path)
		}
	}
}

// removeAbandoned removes the segment at path if its creator is dead. A segment that cannot be
// removed does no harm.
func removeAbandoned(path string) {
	f, err := openExisting(path)
	if err != nil {
		return
	}
	defer f.Close()
	var stat unix.Stat_t
	if unix.Fstat(int(f.Fd()), &stat) == nil && isOwnFile(&stat) &&
		time.Since(time.Unix(stat.Mtim.Unix())) > abandoned &&
		unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		_ = os.Remove(path)
	}
}

// openExisting opens the file at path. It does not follow a symbolic link, and does not wait for a
// lease or for the other end of a FIFO.
func openExisting(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|syscall.O_CLOEXEC|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
}

// isOwnFile reports whether stat describes a regular file of this user.
func isOwnFile(stat *unix.Stat_t) bool {
	return stat.Mode&unix.S_IFMT == unix.S_IFREG && int(stat.Uid) == os.Geteuid()
}
