package launch

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
)

// TestMeetingFileOfAnotherUserIsRejected checks that ranks without a launcher find rank 0
// through a file. A rank must not join the run of another user, and must not wait for a FIFO.
func TestMeetingFileOfAnotherUserIsRejected(t *testing.T) {
	for _, tt := range []struct {
		name   string
		root   bool
		create func(path string) error
		want   string
	}{
		{"own file", false, func(path string) error { return os.WriteFile(path, []byte("own"), 0o600) }, ""},
		{"another user's file", true, func(path string) error {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				return err
			}
			return os.Chown(path, 65534, 65534)
		}, "belongs to user 65534"},
		{"file that others can read", false, func(path string) error {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				return err
			}
			return os.Chmod(path, 0o644)
		}, "other users have access"},
		{"FIFO", false, func(path string) error { return syscall.Mkfifo(path, 0o600) }, "not a regular file"},
		{"symbolic link", false, func(path string) error { return os.Symlink("/etc/passwd", path) }, "symbolic link"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.root && os.Geteuid() != 0 {
				if os.Getenv("CI") != "" {
					t.Fatal("needs root")
				}
				t.Skip("needs root")
			}
			d := rundir.Dir{Path: t.TempDir()}
			if err := tt.create(d.Rendezvous("1", "0", 0)); err != nil {
				t.Fatal(err)
			}
			text, err := waitForRendezvous(t.Context(), func() ([]byte, error) { return d.ReadRendezvous("1", "0", 0) })
			if tt.want == "" && (err != nil || string(text) != "own") {
				t.Errorf("got %q, %v", text, err)
			}
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// TestUntilChanged checks that a rank notices when a new file replaces rank 0's file of an
// earlier start.
func TestUntilChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rendezvous.json")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	changed := make(chan struct{})
	read := func() ([]byte, error) { return os.ReadFile(path) }
	go watchRendezvous(ctx, read, []byte("old"), func() { close(changed) })
	if err := os.Remove(path); err != nil { // between two starts
		t.Fatal(err)
	}
	select {
	case <-changed:
		t.Fatal("a file that is gone is no other address")
	case <-time.After(500 * time.Millisecond):
	}
	if err := os.WriteFile(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	case <-ctx.Done():
		t.Fatal("the new file was not seen")
	}
}

// TestFindMeetingTriesAgain checks that waitForRendezvous waits for a file that does not exist yet.
// On NFS, a file that is replaced can also disappear while it is read.
func TestFindMeetingTriesAgain(t *testing.T) {
	answers := []error{os.ErrNotExist, &os.PathError{Op: "read", Path: "x", Err: syscall.ESTALE}, nil}
	text, err := waitForRendezvous(t.Context(), func() ([]byte, error) {
		err := answers[0]
		answers = answers[1:]
		return []byte("text"), err
	})
	if err != nil || string(text) != "text" || len(answers) > 0 {
		t.Errorf("got %q, %v, %d answers left", text, err, len(answers))
	}
}
