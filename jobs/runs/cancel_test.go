package runs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// TestCheckJobWithoutID checks that a job whose submission has no ID, because the launcher or a repair has
// recorded it, is canceled only if it has left a file in the run directory.
func TestCheckJobWithoutID(t *testing.T) {
	bin := t.TempDir()
	write(t, filepath.Join(bin, "squeue"), "#!/bin/sh\n")
	if err := os.Chmod(filepath.Join(bin, "squeue"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := &Store{Slurm: slurm.Client{Environ: []string{"PATH=" + bin}}}
	record := rundir.Record{Name: "one", Submissions: []rundir.Submission{{JobID: "18"}}}
	dir := create(t, filepath.Join(t.TempDir(), "one"), record)
	run := Run{Dir: dir, Record: record}
	if err := s.checkJob(t.Context(), run); err == nil {
		t.Error("a job that has left no file can be canceled")
	}
	write(t, dir.BatchLog("18"), "")
	if err := s.checkJob(t.Context(), run); err != nil {
		t.Error(err)
	}
}
