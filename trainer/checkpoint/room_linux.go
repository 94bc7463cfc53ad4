package checkpoint

import (
	"cmp"

	"golang.org/x/sys/unix"
)

// blockSize is what statfs counts blocks in: on FUSE another than the size that it says is
// best for transfers.
func blockSize(st *unix.Statfs_t) int64 { return int64(cmp.Or(st.Frsize, st.Bsize)) }
