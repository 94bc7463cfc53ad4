package submit

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

// TestCreateTrialHoldsSweep checks that a launch of a trial writes only into the sweep's directory that it
// has checked. Another user who can write to the directory above may exchange it at any time.
func TestCreateTrialHoldsSweep(t *testing.T) {
	switch {
	case os.Geteuid() == 0:
	case os.Getenv("CI") != "":
		t.Fatal("CI must run as root")
	default:
		t.Skip("requires root")
	}
	c := newCluster(t)
	req := c.request(swept)
	sweep, other := req.Dir, filepath.Join(filepath.Dir(req.Dir), "other")
	choose := func() error {
		trial, release, err := CreateTrial(req, 1)
		if err == nil {
			release()
		}
		if err == nil && !trial.IsHeld() {
			t.Error("the trial is not held")
		}
		return err
	}
	if err := errors.Join(choose(), os.Mkdir(other, 0o700), os.Chown(other, 61001, 61001)); err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan error)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			case <-time.After(50 * time.Microsecond):
				if err := unix.Renameat2(unix.AT_FDCWD, sweep, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE); err != nil {
					done <- err
					return
				}
			}
		}
	}()
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		_ = choose() // fails if it finds the other directory
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{sweep, other} {
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if safefile.CheckOwner(info) == nil {
			continue
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			t.Errorf("the directory of the other user has %v, %v", entries, err)
		}
	}
}
