package submit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
)

// TestRepairRejectsUntrustedSweep checks that a repair of a trial does not use the record of a sweep that
// belongs to another user, or that has a different directory for the trial. The record contains the
// directory where the commands of the job start.
func TestRepairRejectsUntrustedSweep(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("requires root")
	}
	for name, c := range map[string]struct {
		change func(sweep string) error
		ok     bool
	}{
		"own sweep":             {func(string) error { return nil }, true},
		"sweep of another user": {func(sweep string) error { return os.Chown(sweep, 61001, -1) }, false},
		"different trial": {func(sweep string) error {
			return errors.Join(os.Rename(filepath.Join(sweep, "elements", "1"), sweep+".1"), os.Mkdir(filepath.Join(sweep, "elements", "1"), 0o700))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			cl := newCluster(t)
			cl.submitted(cl.request(swept))
			sweep := cl.dir("s")
			trial, release, err := sweep.Element(1).Hold()
			if err != nil {
				t.Fatal(err)
			}
			defer release()
			if err := errors.Join(os.Remove(trial.Record()), c.change(sweep.Path)); err != nil {
				t.Fatal(err)
			}
			job, err := jobs.Parse("job.toml", []byte(swept))
			if err != nil {
				t.Fatal(err)
			}
			done, err := cl.submitter.Repair(t.Context(), RepairRequest{Dir: trial, Job: job})
			if (err == nil) != c.ok {
				t.Errorf("got error %v, base %q", err, done.Record.Base)
			}
			if last := done.Record.LastJob(); c.ok && last != "101_1" {
				t.Errorf("got last job %q", last)
			}
		})
	}
}

// TestRepairIgnoresCheckpointsOfOthers checks that a run does not get the ID of the run that wrote the
// checkpoints of another user. The user may have put a directory at the path of the run directory.
func TestRepairIgnoresCheckpointsOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("requires root")
	}
	cl := newCluster(t)
	text := fmt.Sprintf(single, "a", "", "")
	cl.submitted(cl.request(text))
	dir := cl.dir("a")
	record, err := dir.ReadRecord()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoint.Save(dir.Checkpoints(), &checkpoint.Manifest{Run: "foreign", Step: 1}, checkpoint.Files{checkpoint.ModelFile: nil}); err != nil {
		t.Fatal(err)
	}
	if err := filepath.WalkDir(dir.Checkpoints(), func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Chown(path, 61001, -1))
	}); err != nil {
		t.Fatal(err)
	}
	job, err := jobs.Parse("job.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	done, err := cl.submitter.Repair(t.Context(), RepairRequest{Dir: dir, Job: job})
	if err != nil || !done.Intact || done.Record.Run != record.Run || done.Checkpoints != 0 {
		t.Errorf("got %+v, %v, want the record of run %q", done, err, record.Run)
	}
}

// TestRepairRejectsInvalidRunID checks that the ID in a received checkpoint does not become the ID of
// a run if it is not valid in a path.
func TestRepairRejectsInvalidRunID(t *testing.T) {
	cl := newCluster(t)
	text := fmt.Sprintf(single, "a", "", "")
	cl.submitted(cl.request(text))
	dir := cl.dir("a")
	if _, err := checkpoint.Save(dir.Checkpoints(), &checkpoint.Manifest{Run: "../../x", Step: 1}, checkpoint.Files{checkpoint.ModelFile: nil}); err != nil {
		t.Fatal(err)
	}
	job, err := jobs.Parse("job.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	done, err := cl.submitter.Repair(t.Context(), RepairRequest{Dir: dir, Job: job})
	if err == nil || !strings.Contains(err.Error(), "../../x") || strings.Contains(err.Error(), "internal error") || hints.Of(err) == "" {
		t.Errorf("got %+v, %v, want an error about the ID", done, err)
	}
}
