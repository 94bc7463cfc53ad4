package runs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
)

// TestFindSubmission checks which submission a job belongs to, also if the submission was
// interrupted.
func TestFindSubmission(t *testing.T) {
	s := newStore(t)
	tune, err := s.Find("tune")
	if err != nil {
		t.Fatal(err)
	}
	pending := rundir.NewSubmission()
	tune.Record.Pending = &pending
	if err := tune.Dir.WriteRecord(tune.Record); err != nil {
		t.Fatal(err)
	}
	trial := tune.Dir.Element(1)
	for _, tt := range []struct {
		name, job, submitDir string
		mayBePending         bool
		want                 string // job ID; "pending" for the pending submission
	}{
		{"recorded in the trial", "19_1", "", false, "19_1"},
		{"recorded in the sweep", "19_0", tune.Dir.Path, false, "19"},
		{"unknown job", "20_1", tune.Dir.Path, false, ""},
		{"unknown job, perhaps pending", "20_1", tune.Dir.Path, true, "pending"},
		{"without the sweep", "20_1", "", true, ""},
		{"without Slurm", "", tune.Dir.Path, true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := FindSubmission(trial, tt.job, tt.submitDir, tt.mayBePending)
			if err != nil {
				t.Fatal(err)
			}
			id := ""
			switch {
			case got != nil && got.ID == pending.ID:
				id = "pending"
			case got != nil:
				id = got.JobID
			}
			if id != tt.want {
				t.Errorf("got submission %q, want %q", id, tt.want)
			}
		})
	}
}

// TestFindSubmissionInReplacedSweep checks that the submission of a different sweep does not count if another
// user has exchanged the directories of two sweeps of this user.
func TestFindSubmissionInReplacedSweep(t *testing.T) {
	s := newStore(t)
	path := filepath.Join(s.Runs(), "tune")
	held, release, err := rundir.Dir{Path: path}.Hold()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	pending := rundir.NewSubmission()
	other := create(t, path, rundir.Record{Name: "tune", Pending: &pending})
	create(t, other.Element(1).Path, rundir.Record{Name: "tune-1"})
	if got, err := FindSubmission(held.Element(1), "20_1", path, true); err == nil {
		t.Errorf("got submission %+v", got)
	}
}

// TestIsSweepDigest checks that only the sweep of this user counts.
func TestIsSweepDigest(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("requires root")
	}
	s := newStore(t)
	tune, err := s.Find("tune")
	if err != nil {
		t.Fatal(err)
	}
	pending := rundir.NewSubmission()
	pending.SpecSHA256 = "digest"
	tune.Record.Pending = &pending
	if err := tune.Dir.WriteRecord(tune.Record); err != nil {
		t.Fatal(err)
	}
	trial := tune.Dir.Element(1)
	if !IsSweepDigest(trial, "digest") || IsSweepDigest(trial, "other") || IsSweepDigest(tune.Dir, "digest") {
		t.Error("the digest of the sweep is not recognized, or another digest is")
	}
	if err := os.Chown(tune.Dir.Path, 61001, 61001); err != nil {
		t.Fatal(err)
	}
	if IsSweepDigest(trial, "digest") {
		t.Error("the record of a sweep of another user counts")
	}
}

// TestCheckDigest checks that a stored job must have the digest of its submission.
func TestCheckDigest(t *testing.T) {
	job := StoredJob{Spec: []byte("name = \"a\"\n"), SiteProfile: []byte("x"), Record: rundir.Record{Base: "/home/ada"}}
	digest := rundir.JobDigest(job.Spec, job.SiteProfile, job.Record.Base)
	other := job
	other.Record.Base = "/home/eve"
	for _, tt := range []struct {
		name    string
		job     StoredJob
		isValid bool
	}{
		{name: "submitted", job: job, isValid: true},
		{name: "different base directory", job: other},
	} {
		if err := tt.job.CheckDigest(rundir.Dir{Path: "/runs/a"}, digest); (err == nil) != tt.isValid {
			t.Errorf("%s: got %v", tt.name, err)
		}
	}
}
