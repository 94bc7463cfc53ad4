package checkpoint

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/format"
)

// Room says whether a folder has room for n checkpoints as large as one that m
// describes, with figures if not. It sees what the file system has left, not a quota,
// which shows only when it is exceeded; a file system that does not tell has room.
func Room(dir string, m *Manifest, n int) error {
	what := "another checkpoint"
	if n > 1 {
		what = fmt.Sprintf("%d more checkpoints", n)
	}
	return room(dir, m.bytes()*int64(n), fmt.Sprintf("%s of %s", what, format.Bytes(m.bytes())))
}

// bytes is the size of a checkpoint without its manifest.
func (m *Manifest) bytes() int64 {
	n := int64(0)
	for _, f := range m.Files {
		n += f.Bytes
	}
	return n
}

// room refuses to write what the file system of a folder, which may not be there yet,
// has too little left for.
func room(dir string, bytes int64, what string) error {
	var st unix.Statfs_t
	err := unix.Statfs(dir, &st)
	for above := dir; err == unix.ENOENT && above != filepath.Dir(above); {
		above = filepath.Dir(above)
		err = unix.Statfs(above, &st)
	}
	if err != nil || st.Blocks == 0 {
		return nil
	}
	free := int64(st.Bavail) * blockSize(&st)
	if bytes <= free {
		return nil
	}
	return full{fmt.Errorf("there is no room for %s in %q: %s are free there", what, dir, format.Bytes(free)), hasAny(dir)}
}
