package main

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/launch"
	"github.com/ddpbatch/ddpbatch/jobs/launch/output"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

// TestDiagnosisIgnoresEarlierLaunches checks that a launch that fails before its ranks print is not
// diagnosed by the output of an earlier launch.
func TestDiagnosisIgnoresEarlierLaunches(t *testing.T) {
	dir, err := rundir.Create(filepath.Join(t.TempDir(), "run"))
	if err != nil {
		t.Fatal(err)
	}
	addOutput := func(attempt int) {
		t.Helper()
		to, err := dir.CreateRankOutput(attempt)
		if err != nil {
			t.Fatal(err)
		}
		defer to.Close()
		f, err := to.Create(output.Parts(output.RankBase(0))[0])
		if err == nil {
			_, err = f.WriteString("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n")
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	addOutput(1)
	d := newDiagnosis(&launch.Options{Dir: dir, Job: &jobs.Job{Command: &jobs.Command{Output: jobs.OutputPerRank}}})
	result := launch.Result{Failure: &rendezvous.Failure{Rank: 0, Reason: "rank 0 did not join"}}
	if found := d.find(result); found != nil {
		t.Errorf("before the ranks print: got %+v", found)
	}
	addOutput(2)
	if found := d.find(result); found == nil {
		t.Error("no known failure in the output of the launch")
	}
}
