package submit

import (
	"slices"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
)

// TestPrepareLaunch checks that a launch records the job of the user's own batch script once, and
// stores what later commands read.
func TestPrepareLaunch(t *testing.T) {
	c := newCluster(t)
	req := c.request(job("own", "", ""))
	dir, err := rundir.Create(req.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		jobID string
		want  []string
	}{
		{name: "without Slurm"},
		{name: "job", jobID: "18", want: []string{"18"}},
		{name: "second launch in the job", jobID: "18", want: []string{"18"}},
		{name: "next job", jobID: "19", want: []string{"18", "19"}},
	} {
		if err := PrepareLaunch(dir, req, tt.jobID); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if got := idsOf(c.record(dir).Submissions); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got jobs %q, want %q", tt.name, got, tt.want)
		}
	}
	if last := c.record(dir).Last(); last.ID != "" || last.Host != req.Host || last.User != req.User || last.SpecSHA256 != rundir.Digest(req.Spec) {
		t.Errorf("got %+v", last)
	}
	spec, specErr := dir.ReadSpec()
	site, siteErr := dir.ReadSite()
	if specErr != nil || siteErr != nil || string(spec) != string(req.Spec) || string(site) != string(req.Site.Source()) {
		t.Errorf("the job file or the profile differs: %v, %v", specErr, siteErr)
	}
}

// TestPrepareLaunchKeepsPending checks that a launch does not record its job if a submission is
// incomplete: it may be the submission of this job.
func TestPrepareLaunchKeepsPending(t *testing.T) {
	c := newCluster(t)
	req := c.request(job("own", "", ""))
	dir := c.submitted(req).Dir
	record, pending := c.record(dir), rundir.NewSubmission()
	record.Pending = &pending
	if err := dir.WriteRecord(record); err != nil {
		t.Fatal(err)
	}
	if err := PrepareLaunch(dir, req, "18"); err != nil {
		t.Fatal(err)
	}
	if record = c.record(dir); record.Of("18") != nil || record.Pending == nil {
		t.Errorf("got %+v", record)
	}
}

// TestCreateTrial checks that the record of the sweep has all trials, and that a single run keeps its
// directory.
func TestCreateTrial(t *testing.T) {
	c := newCluster(t)
	req := c.request(swept)
	trial, release, err := CreateTrial(req, 2)
	if err != nil {
		t.Fatal(err)
	}
	release()
	sweep := c.dir("s")
	if trial.Path != sweep.Element(2).Path {
		t.Errorf("got the directory %q", trial.Path)
	}
	if record := c.record(sweep); record.Sweep == nil || len(record.Sweep.Elements) != 3 {
		t.Errorf("got the sweep %+v, want 3 trials", record.Sweep)
	}
	req.Dir = c.submitted(c.request(job("single", "", ""))).Dir.Path
	_, _, err = CreateTrial(req, 2)
	mustFail(t, err, "holds a single run, not a sweep")
}
