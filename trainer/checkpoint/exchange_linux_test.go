package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// exchangeDirs calls f for 1 s while another goroutine exchanges two directories, as a user
// who can write to their parent directory can. Both are at their own paths in the end. If f returns
// false, exchangeDirs stops.
func exchangeDirs(t *testing.T, own, other string, f func() bool) {
	t.Helper()
	parent, err := os.OpenRoot(filepath.Dir(own))
	if err != nil {
		t.Fatal(err)
	}
	defer parent.Close()
	stop, done := make(chan struct{}), make(chan error)
	go func() {
		for exchanged := false; ; exchanged = !exchanged {
			select {
			case <-stop:
				if !exchanged {
					done <- nil
					return
				}
			default:
			}
			time.Sleep(100 * time.Microsecond) // enough for several system calls
			if err := exchange(parent, filepath.Base(own), filepath.Base(other)); err != nil {
				done <- err
				return
			}
		}
	}()
	for end := time.Now().Add(time.Second); time.Now().Before(end) && f(); {
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestPruneReadsCheckedDirectory checks that Prune decides about the checkpoints in the directory that
// it has checked, and not in another one that a different user has put at its path. There, a
// checkpoint that stays permanently is not permanent.
func TestPruneReadsCheckedDirectory(t *testing.T) {
	dir := t.TempDir()
	own, other := filepath.Join(dir, "checkpoints"), filepath.Join(dir, "other")
	for step := 1; step <= 3; step++ {
		m, files := state(step)
		m.Epoch, m.Consumed = 1, 0
		if _, err := Save(own, m, files); err != nil {
			t.Fatal(err)
		}
		m.Consumed = 1
		if step == 3 {
			m.Run = "another"
		}
		if _, err := Save(other, m, files); err != nil {
			t.Fatal(err)
		}
	}
	exchangeDirs(t, own, other, func() bool {
		_ = Prune(t.Context(), own, "run", 3, Retention{Newest: 1, Epochs: 1}, map[int]bool{1: true, 2: true})
		return true
	})
	if got := names(t, own); len(got) != 3 {
		t.Errorf("left %v, want all", got)
	}
}

// TestSaveReadsCheckedDirectory checks that a checkpoint of another user that has been put at the path
// does not make a save unnecessary.
func TestSaveReadsCheckedDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("requires root")
	}
	dir := t.TempDir()
	own, other := filepath.Join(dir, "checkpoints"), filepath.Join(dir, "other")
	save(t, own, 1)
	save(t, other, 2)
	if err := filepath.WalkDir(other, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Chown(path, 61001, -1))
	}); err != nil {
		t.Fatal(err)
	}
	exchangeDirs(t, own, other, func() bool {
		m, _ := state(2)
		s, err := Begin(own, m)
		if err != nil {
			return true
		}
		if s.Exists {
			t.Error("another user's checkpoint counts as saved")
			return false
		}
		s.Abort()
		return true
	})
}
