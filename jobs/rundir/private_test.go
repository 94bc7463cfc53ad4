package rundir

import (
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

// TestMakePrivate checks the mode of a file on a file system with NFSv4 access control lists,
// where a file can be open to others although it was created with mode 0600.
func TestMakePrivate(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Chmod(0o664); err != nil {
		t.Fatal(err)
	}
	info, err := makePrivate(f)
	if err == nil {
		err = safefile.CheckPrivate(info)
	}
	if err != nil {
		t.Error(err)
	}
}

// TestReadSecretRejectsLargeFile checks that a file above the limit is an error, and is not truncated.
func TestReadSecretRejectsLargeFile(t *testing.T) {
	d := Dir{Path: t.TempDir()}
	for _, tt := range []struct {
		size  int
		valid bool
	}{{maxPrivate, true}, {maxPrivate + 1, false}} {
		name, err := d.WriteSecret(1, make([]byte, tt.size))
		if err != nil {
			t.Fatal(err)
		}
		text, err := d.ReadSecret(name)
		if tt.valid && (err != nil || len(text) != tt.size) || !tt.valid && !errors.Is(err, safefile.ErrTooLarge) {
			t.Errorf("%d bytes: got %d bytes, %v", tt.size, len(text), err)
		}
	}
}

// TestWriteSecretNamesFile checks that an error names the file of the secret.
func TestWriteSecretNamesFile(t *testing.T) {
	d := Dir{Path: filepath.Join(t.TempDir(), "missing")}
	_, err := d.WriteSecret(1, nil)
	if err == nil || !strings.Contains(err.Error(), secretPrefix+"1-") {
		t.Errorf("got %v", err)
	}
}

// TestLockWaitsForOwnLease checks that a lease of the same user, such as a lease that an NFS
// server holds for a client, only delays the lock.
func TestLockWaitsForOwnLease(t *testing.T) {
	d := Dir{Path: t.TempDir()}
	f, err := os.Create(filepath.Join(d.Path, launchLockName))
	if err != nil {
		t.Fatal(err)
	}
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGIO)
	defer signal.Stop(broken)
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Fatal(err)
	}
	go func() {
		<-broken
		f.Close()
	}()
	unlock, err := d.Lock(Claim{})
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}
