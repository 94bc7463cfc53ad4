package safefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOpenDoesNotWaitForOthers checks that the lease of another user does not delay commands.
func TestOpenDoesNotWaitForOthers(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "leased"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Fatal(err)
	}
	if err := f.Chown(65534, 65534); err != nil {
		t.Fatal(err) // the suite runs as root
	}
	calls := 0
	_, err = waitForLease(func() (*os.File, error) {
		calls++
		return os.OpenFile(f.Name(), os.O_RDONLY|unix.O_NONBLOCK, 0)
	}, func() (fs.FileInfo, error) { return os.Stat(f.Name()) })
	if calls != 1 || !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("%d calls, %v", calls, err)
	}
}
