package checkpoint

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// CheckSpace returns an error, with sizes, if the file system of dir has too little space for n
// checkpoints of the size that m describes. It does not detect quotas, which show only when they
// are exceeded. If the file system does not report its free space, CheckSpace returns nil.
func CheckSpace(dir string, m *Manifest, n int) error {
	what := "another checkpoint"
	if n > 1 {
		what = fmt.Sprintf("%d more checkpoints", n)
	}
	return checkFree(dir, m.bytes()*int64(n), fmt.Sprintf("%s of %s", what, format.Bytes(m.bytes())))
}

// bytes returns the size of a checkpoint without its manifest.
func (m *Manifest) bytes() int64 {
	n := int64(0)
	for _, f := range m.Files {
		n += f.Bytes
	}
	return n
}

// checkFree returns an error if the file system of dir has less than bytes free. The directory need
// not exist yet.
func checkFree(dir string, bytes int64, what string) error {
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
	return hints.Errorf(fullHint(dir), "not enough space for %s in %q: %s are free", what, dir, format.Bytes(free))
}
