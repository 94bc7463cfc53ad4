package submit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
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

// TestRepairRestoresChain checks that the jobs of a chain stay in the chain, except for jobs that have
// started and for the jobs before them.
func TestRepairRestoresChain(t *testing.T) {
	for _, tt := range []struct {
		name        string
		spec        string
		trial       int    // trial to repair, or -1
		started     string // job of the chain; empty if no job of the chain has started
		submissions []string
		chain       []string
	}{
		{name: "run", spec: job("x", "", ""), trial: -1, submissions: []string{"101"}, chain: []string{"102", "103"}},
		{name: "run, second job has started", spec: job("x", "", ""), trial: -1, started: "102", submissions: []string{"101", "102"}, chain: []string{"103"}},
		{name: "sweep", spec: swept, trial: -1, submissions: []string{"101"}, chain: []string{"102", "103"}},
		{name: "trial", spec: swept, trial: 1, submissions: []string{"101_1"}, chain: []string{"102_1", "103_1"}},
		{name: "trial, third job has started", spec: swept, trial: 1, started: "103_1", submissions: []string{"101_1", "103_1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t)
			req := c.request(tt.spec)
			req.Chain = 3
			c.submitted(req)
			dir, job := c.dir(string(req.Job.Name)), req.Job
			if tt.trial >= 0 {
				dir, job = dir.Element(tt.trial), req.Job.Sweep.Trials[tt.trial].Job
			}
			dir, release, err := dir.Hold()
			if err != nil {
				t.Fatal(err)
			}
			defer release()
			want := c.record(dir)
			if tt.started != "" {
				c.write(dir.Path, filepath.Base(dir.BatchLog(tt.started)), "")
			}
			text, err := os.ReadFile(dir.Record())
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(dir.Record(), int64(len(text))-2); err != nil {
				t.Fatal(err)
			}
			list := ""
			for _, id := range []string{"101", "102", "103"} {
				list += fmt.Sprintf("echo '%s|%s|N/A|0|%s|%s|%s'; ", id, id, "", dir.Script(), dir.BatchLog(id))
			}
			c.squeue(`case "$*" in *STDOUT*) ` + list + `exit 0;; esac`)
			done, err := c.submitter.Repair(t.Context(), RepairRequest{Dir: dir, Job: job})
			if err != nil {
				t.Fatal(err)
			}
			got := c.record(dir)
			var submissions, chain []string
			for _, s := range got.Submissions {
				submissions = append(submissions, s.JobID)
			}
			for _, s := range got.Chain {
				chain = append(chain, s.JobID)
				if w := want.Of(s.JobID); w.ID != s.ID || w.Follows != s.Follows {
					t.Errorf("got %+v, want %+v", s, w)
				}
			}
			if done.Intact || !slices.Equal(submissions, tt.submissions) || !slices.Equal(chain, tt.chain) {
				t.Errorf("got submissions %q and chain %q, want %q and %q", submissions, chain, tt.submissions, tt.chain)
			}
		})
	}
}

// TestRepairOfTrialSubmittedAgain checks that the chain of an earlier submission does not continue a trial
// that was submitted again.
func TestRepairOfTrialSubmittedAgain(t *testing.T) {
	sweep := rundir.Record{Submissions: []rundir.Submission{{JobID: "1", Elements: []int{0, 1}}, {JobID: "3", Elements: []int{0}}},
		Chain: []rundir.Submission{{JobID: "2", Follows: "1", Elements: []int{0, 1}}, {JobID: "4", Follows: "3", Elements: []int{0}}}}
	for index, want := range []string{"1_0 3_0 | 4_0", "1_1 | 2_1"} {
		var record rundir.Record
		addSubmissionsOfElement(&record, sweep, index)
		var got []string
		for _, s := range record.Submissions {
			got = append(got, s.JobID)
		}
		got = append(got, "|")
		for _, s := range record.Chain {
			got = append(got, s.JobID)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("trial %d: got %q, want %q", index, got, want)
		}
	}
}
