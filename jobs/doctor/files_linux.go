package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/format"
)

// fileSystems maps types of statfs(2) to names. Local reports whether only one node can access
// the file system.
var fileSystems = map[int64]struct {
	name  string
	local bool
}{
	0x6969: {"NFS", false}, 0x0BD00BD0: {"Lustre", false}, 0x47504653: {"GPFS", false}, 0x19830326: {"BeeGFS", false}, 0x00C36400: {"Ceph", false},
	0x65735546: {"FUSE", false}, 0x01021997: {"9p", false}, 0x6A656A63: {"virtiofs", false}, 0xFE534D42: {"SMB", false},
	0xEF53: {"ext4", true}, 0x58465342: {"XFS", true}, 0x9123683E: {"btrfs", true}, tmpfsMagic: {"tmpfs", true}, 0x794C7630: {"overlay", true}, 0x2FC12FC1: {"ZFS", true},
}

// Limits of the checks: a worse value causes a warning. speedBytes is the size of the large file
// for the speed test.
const (
	minFree     = 10 << 30
	minInodes   = 10_000
	slowSync    = 200 * time.Millisecond
	maxFileSkew = 2 * time.Second
	speedBytes  = 32 << 20
)

// checkFiles checks the file system of dir. It works in a new directory in dir, which it removes.
// Nodes reports whether the job has several nodes.
//
// Other users may be able to write to dir, and therefore to replace the new directory. Files
// are created, replaced, and removed only in the directory that was opened and checked.
func checkFiles(dir string, nodes bool) []Finding {
	const part = "files"
	work, err := os.MkdirTemp(dir, ".ddpbatch-doctor-")
	if err != nil {
		return []Finding{fail(part, err.Error(), "name a writable directory with --dir")}
	}
	defer os.Remove(work)
	root, err := openNewDir(work)
	if err != nil {
		return []Finding{fail(part, err.Error(), "name a directory with --dir in which other users cannot replace files")}
	}
	defer root.Close()
	found := []Finding{checkSpace(work, nodes)}
	for _, try := range []func(*os.Root) Finding{checkRename, checkLock, checkSpeed, checkFileClock} {
		found = append(found, try(root))
	}
	for _, name := range []string{"a", "b", "lock", "small", "large", "time"} {
		_ = root.Remove(name) // some are missing after a failed check
	}
	return found
}

func checkSpace(dir string, nodes bool) Finding {
	const part = "files"
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return warn(part, err.Error(), "run `df` to see the free space")
	}
	kind, known := fileSystems[int64(s.Type)]
	if !known {
		kind.name = fmt.Sprintf("type %#x", s.Type)
	}
	free := int64(s.Bavail) * blockSize(&s)
	text := fmt.Sprintf("%s: %s, %s free", filepath.Dir(dir), kind.name, format.Bytes(free))
	switch {
	case free < minFree:
		return warn(part, text, "free space or lower checkpoint.keep; with Adam, a checkpoint needs 12 bytes per parameter (see `ddpbatch plan`)")
	case s.Files > 0 && s.Ffree < minInodes:
		return warn(part, fmt.Sprintf("%s, %d inodes free", text, s.Ffree), "remove files, or ask the center for more inodes")
	case nodes && kind.local:
		return warn(part, text+": usually a local file system", "put the run directory on a shared file system with --run-dir")
	}
	return pass(part, text)
}

// blockSize returns the unit of statfs's block counts. On FUSE it can differ from Bsize, which
// is the preferred transfer size, and which is 1 MiB for some file systems.
func blockSize(s *unix.Statfs_t) int64 { return int64(cmp.Or(s.Frsize, s.Bsize)) }

// checkRename checks that a rename replaces an open file atomically. A process that has the old
// file open must keep its content. A process that opens the path must get one of the two
// files.
func checkRename(dir *os.Root) Finding {
	const part = "files rename"
	const old, fresh = "a", "b"
	err := errors.Join(dir.WriteFile(old, []byte("old"), 0o600), dir.WriteFile(fresh, []byte("new"), 0o600))
	if err == nil {
		var f *os.File
		if f, err = dir.Open(old); err == nil {
			defer f.Close()
			err = dir.Rename(fresh, old)
			content := make([]byte, 3)
			if _, rerr := f.ReadAt(content, 0); err == nil && (rerr != nil || string(content) != "old") {
				err = fmt.Errorf("an open file changed when it was replaced: %q, %w", content, rerr)
			}
		}
	}
	if err == nil {
		var text []byte
		if text, err = dir.ReadFile(old); err == nil && string(text) != "new" {
			err = fmt.Errorf("after a rename, the file contains %q", text)
		}
	}
	if err != nil {
		return fail(part, err.Error(), "use a different file system; ddpbatch replaces checkpoints and records by rename")
	}
	return pass(part, "replaces a file")
}

// checkLock checks that flock(2) does not lock a locked file again.
func checkLock(dir *os.Root) Finding {
	const part = "files lock"
	const hint = "mount the file system with locks (NFS: local_lock, Lustre: -o flock); otherwise, two launchers can use one run directory"
	const path = "lock"
	first, err := dir.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fail(part, err.Error(), hint)
	}
	defer first.Close()
	if err := unix.Flock(int(first.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return warn(part, fmt.Sprintf("flock: %v", err), hint)
	}
	second, err := dir.OpenFile(path, os.O_RDWR, 0) // NFS requires write access for a lock
	if err != nil {
		return fail(part, err.Error(), hint)
	}
	defer second.Close()
	switch err := unix.Flock(int(second.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case err == nil:
		return warn(part, "flock locks a locked file again", hint)
	case !errors.Is(err, unix.EWOULDBLOCK):
		return warn(part, fmt.Sprintf("flock of a locked file: %v", err), hint)
	}
	return pass(part, "flock rejects a second lock")
}

// checkSpeed measures the time to write and sync small files and a large file.
func checkSpeed(dir *os.Root) Finding {
	const part = "files speed"
	write := func(name string, text []byte) (time.Duration, error) {
		began := time.Now()
		f, err := dir.Create(name)
		if err != nil {
			return 0, err
		}
		_, err = f.Write(text)
		err = errors.Join(err, f.Sync(), f.Close())
		return time.Since(began), err
	}
	var times []time.Duration
	for range 5 {
		took, err := write("small", make([]byte, 4096))
		if err != nil {
			return fail(part, err.Error(), "use a different file system; checkpoints must be synced to disk")
		}
		times = append(times, took)
	}
	slices.Sort(times)
	took, err := write("large", make([]byte, speedBytes))
	if err != nil {
		return fail(part, err.Error(), "check free space and quota")
	}
	text := fmt.Sprintf("small file synced in %s, %s written at %s/s", times[2].Round(10*time.Microsecond), format.Bytes(speedBytes), format.Bytes(int64(speedBytes/took.Seconds())))
	if times[2] > slowSync {
		return warn(part, text, "set checkpoint.async = true, or use a faster file system")
	}
	return pass(part, text)
}

// checkFileClock compares the clock of the file server with the clock of this node.
func checkFileClock(dir *os.Root) Finding {
	const part = "files clock"
	before := time.Now()
	const path = "time"
	err := dir.WriteFile(path, []byte("x"), 0o600)
	after := time.Now()
	var info os.FileInfo
	if err == nil {
		info, err = dir.Stat(path)
	}
	if err != nil {
		return fail(part, err.Error(), "use a different file system")
	}
	skew := time.Duration(0)
	switch stamp := info.ModTime(); {
	case stamp.Before(before.Add(-time.Second)): // some file systems store whole seconds
		skew = stamp.Sub(before)
	case stamp.After(after):
		skew = stamp.Sub(after)
	}
	if skew.Abs() > maxFileSkew {
		return warn(part, fmt.Sprintf("the clock of the file server differs by %s from this node's", skew.Round(time.Millisecond)), "tell the center: one of the two is not synchronized")
	}
	return pass(part, "the file server's clock matches this node's")
}
