package checkpoint

import (
	"os"

	"golang.org/x/sys/unix"
)

// exchange swaps the names of two entries of a directory atomically (renameat2(2)).
func exchange(root *os.Root, a, b string) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	return unix.Renameat2(int(dir.Fd()), a, int(dir.Fd()), b, unix.RENAME_EXCHANGE)
}
