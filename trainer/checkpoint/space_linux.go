package checkpoint

import (
	"cmp"

	"golang.org/x/sys/unix"
)

// blockSize returns the unit of the block counts of statfs. On FUSE it differs from f_bsize, the
// preferred transfer size.
func blockSize(st *unix.Statfs_t) int64 { return int64(cmp.Or(st.Frsize, st.Bsize)) }
