package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/safefile"
	"github.com/ddpbatch/ddpbatch/jobs"
)

// TestChooseTrialHoldsSweep checks that a launch of a trial writes only into the sweep's directory that it
// has checked. Another user who can write to the directory above may exchange it at any time.
func TestChooseTrialHoldsSweep(t *testing.T) {
	requireRoot(t)
	job, err := jobs.Parse("job.toml", []byte("name = \"tune\"\n[sweep.grid]\n\"setup.env.A\" = [\"1\", \"2\"]\n[command]\nargv = [\"true\"]\n"))
	if err != nil {
		t.Fatal(err)
	}
	spec, err := job.Source()
	if err != nil {
		t.Fatal(err)
	}
	base := t.TempDir()
	sweep, other := filepath.Join(base, "tune"), filepath.Join(base, "other")
	choose := func() error {
		index := 1
		c := launchCmd{Element: &index}
		trial, release, err := c.chooseTrial(&jobFile{job: job, base: base, spec: spec}, sweep)
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
