package checkpoint

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestBlockSize checks that blockSize prefers the fragment size. FUSE reports blocks in units of
// it, and it differs from the transfer size.
func TestBlockSize(t *testing.T) {
	for _, c := range []struct{ transfer, fragment, want int64 }{{1 << 20, 4096, 4096}, {4096, 1 << 20, 1 << 20}, {4096, 0, 4096}} {
		var st unix.Statfs_t
		st.Bsize, st.Frsize = c.transfer, c.fragment
		if got := blockSize(&st); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
