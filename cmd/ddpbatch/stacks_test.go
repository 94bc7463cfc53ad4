package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/runs"
)

// requireRoot skips a test that needs root. In CI, it fails the test.
func requireRoot(t *testing.T) {
	t.Helper()
	switch {
	case os.Geteuid() == 0:
	case os.Getenv("CI") != "":
		t.Fatal("CI must run as root")
	default:
		t.Skip("requires root")
	}
}

// TestJobOwner checks that root runs a command only in a job of the run's owner, and that the owner
// needs no check.
func TestJobOwner(t *testing.T) {
	requireRoot(t)
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "squeue"), []byte("#!/bin/sh\ncase $* in *--jobs=7*) echo 61001;; *) echo 61002;; esac\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	p := &program{}
	p.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH")}
	dir, err := rundir.Create(filepath.Join(t.TempDir(), "run"))
	if err != nil {
		t.Fatal(err)
	}
	active := func(job string) activeRun {
		live := rundir.Live{JobID: job, Phase: rundir.PhaseRunning, Hosts: "n1"}
		if err := dir.WriteLive(live); err != nil {
			t.Fatal(err)
		}
		return activeRun{run: runs.Run{Dir: dir}, live: live}
	}
	if err := p.checkJobOwner(t.Context(), active("8")); err != nil {
		t.Errorf("own run: %v", err)
	}
	if err := os.Chown(dir.Path, 61001, 61001); err != nil {
		t.Fatal(err)
	}
	if err := p.checkJobOwner(t.Context(), active("7")); err != nil {
		t.Errorf("job of the owner: %v", err)
	}
	if err := p.checkJobOwner(t.Context(), active("8")); err == nil || !strings.Contains(err.Error(), "job 8 of user 61002") {
		t.Errorf("job of a different user: %v", err)
	}
	if err := p.checkJobOwner(t.Context(), active("")); err != nil {
		t.Errorf("without Slurm: %v", err)
	}
}
