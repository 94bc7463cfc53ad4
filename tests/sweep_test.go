package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

// elementStatus holds the fields of a trial in the output of status --json.
type elementStatus struct {
	Name     string            `json:"name"`
	Job      string            `json:"job_id"`
	State    string            `json:"state"`
	Phase    string            `json:"phase"`
	ExitCode string            `json:"exit_code"`
	Finished bool              `json:"finished"`
	Values   map[string]string `json:"values"`
}

func (s site) elements(run string) []elementStatus {
	s.t.Helper()
	o := s.ddpbatch("status", "--json", run)
	var all []struct{ Elements []elementStatus }
	if err := json.Unmarshal([]byte(o.stdout), &all); o.code != 0 || err != nil || len(all) != 1 {
		s.t.Fatalf("%v, %v", o, err)
	}
	return all[0].Elements
}

const sweepOfPrograms = `name = "programs"
[slurm]
time = "00:05:00"
[sweep]
throttle = 2
[[sweep.list]]
setup.env.WANT = "0"
[[sweep.list]]
setup.env.WANT = "3"
[[sweep.list]]
setup.env.WANT = "0"
[[sweep.list]]
setup.env.WANT = "0"
[command]
argv = ["sh", "-c", "date +start=%%s.%%N; sleep 1; date +end=%%s.%%N; echo WANT=$WANT; test -e %s || exit $WANT"]
`

// TestSweepOnCluster checks that a sweep becomes one job array with a throttle, and that a new
// submission runs only the failed trial again.
func TestSweepOnCluster(t *testing.T) {
	s := newSite(t, cluster.Options{})
	fixed := filepath.Join(s.home, "fixed")
	s.write("sweep.toml", fmt.Sprintf(sweepOfPrograms, fixed))
	id := s.submit("sweep.toml")

	o := s.ddpbatch("wait", "programs")
	if o.code != 3 {
		t.Errorf("the exit code of the trial that failed is not told: %v", o)
	}
	mustContain(t, o.stderr, "1 of 4 trials did not complete", "job "+id+"_1 ended as failed", "exit code 3")
	for i, e := range s.elements("programs") {
		want, phase := "COMPLETED", "done"
		if i == 1 {
			want, phase = "FAILED", "failed" // not "stopped", the usual meaning of exit code 3
		}
		if e.Job != fmt.Sprintf("%s_%d", id, i) || e.State != want || e.Phase != phase || e.Name != fmt.Sprintf("programs-%d", i) || e.Finished != (i != 1) || e.Values["setup.env.WANT"] == "" {
			t.Errorf("trial %d: %+v, want %s", i, e, want)
		}
	}
	if most := maxConcurrent(t, s, 4); most > 2 {
		t.Errorf("got %d concurrent trials, want at most 2", most)
	}
	mustContain(t, s.ddpbatch("logs", "programs").stdout, "[1] WANT=3", "[0] WANT=0", "[3] WANT=0")
	mustContain(t, s.ddpbatch("logs", id+"_1").stdout, "WANT=3")

	if err := os.WriteFile(fixed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	again := s.submit("sweep.toml", "--failed")
	if o := s.ddpbatch("wait", "programs"); o.code != 0 {
		t.Errorf("%v", o)
	}
	for i, e := range s.elements("programs") {
		want := fmt.Sprintf("%s_%d", id, i)
		if i == 1 {
			want = again + "_1"
		}
		if e.Job != want || e.State != "COMPLETED" {
			t.Errorf("after the second time, trial %d: %+v, want job %s", i, e, want)
		}
	}
	if o := s.ddpbatch("submit", "sweep.toml"); o.code != 0 || !strings.Contains(o.stdout, "nothing to submit") {
		t.Errorf("a third time: %v", o)
	}
}

// maxConcurrent returns the maximum number of trials of the sweep that ran at the same time,
// according to their output.
func maxConcurrent(t *testing.T, s site, n int) int {
	t.Helper()
	type span struct{ start, end float64 }
	var spans []span
	for i := range n {
		logs, err := filepath.Glob(filepath.Join(s.run("programs"), "elements", fmt.Sprint(i), "slurm-*.out"))
		if err != nil || len(logs) != 1 {
			t.Fatalf("logs of trial %d: %q, %v", i, logs, err)
		}
		text, err := os.ReadFile(logs[0])
		if err != nil {
			t.Fatal(err)
		}
		var x span
		for line := range strings.Lines(string(text)) {
			fmt.Sscanf(line, "start=%f", &x.start)
			fmt.Sscanf(line, "end=%f", &x.end)
		}
		spans = append(spans, x)
	}
	most := 0
	for _, at := range spans {
		now := 0
		for _, x := range spans {
			if x.start <= at.start && at.start < x.end {
				now++
			}
		}
		most = max(most, now)
	}
	return most
}

const sweepOfTrainings = `name = "lr"
[slurm]
nodes = 2
time = "00:05:00"
[sweep.grid]
train.optimizer.lr = [0.1, 0.001]
[train]
epochs = 2
batch = 64
[train.model]
kind = "linear"
[train.data]
kind = "idx"
path = "builtin:fashion-mnist"
[train.optimizer]
kind = "sgd"
`

// TestSweepOfTrainings checks that the trials of a sweep are separate runs, and that they are
// canceled together and resume.
func TestSweepOfTrainings(t *testing.T) {
	s := newSite(t, cluster.Options{})
	s.write("lr.toml", sweepOfTrainings)
	// Run the trials one at a time.
	id := s.submit("lr.toml", "--set", "sweep.throttle=1")
	if o := s.ddpbatch("wait", "lr"); o.code != 0 {
		t.Fatal(o)
	}
	table := s.ddpbatch("status", "lr").stdout
	mustContain(t, table, "LR", id+"_0", id+"_1", "done")
	first, second := lastAccuracy(t, filepath.Join(s.run("lr"), "elements", "0")), lastAccuracy(t, filepath.Join(s.run("lr"), "elements", "1"))
	if first == second {
		t.Errorf("both learning rates give accuracy %g", first)
	}
	if a, b := weights(t, filepath.Join(s.run("lr"), "elements", "0")), weights(t, filepath.Join(s.run("lr"), "elements", "1")); a == b {
		t.Error("both trials have the same weights")
	}
}

// TestArrayOfOnesOwn checks that the runs have the right job IDs if a user's own job array launches
// a run in each array task.
func TestArrayOfOnesOwn(t *testing.T) {
	s := newSite(t, cluster.Options{})
	s.write("job.toml", "name = \"own\"\n[command]\nargv = [\"sh\", \"-c\", \"exit $SLURM_ARRAY_TASK_ID\"]\n")
	s.write("array.sh", fmt.Sprintf("#!/bin/sh\n#SBATCH --array=0,3 --output=%s/own-%%a.out\ncd %[1]s && %s launch job.toml --run-dir runs/own-$SLURM_ARRAY_TASK_ID\n", s.home, binary))
	cmd := s.Command(t.Context(), "sbatch", "--parsable", "--wait", filepath.Join(s.home, "array.sh"))
	cmd.Dir = s.home
	o := finish(t, cmd)
	id := strings.TrimSpace(o.stdout)
	mustContain(t, s.ddpbatch("status", "own-0").stdout, id+"_0", "completed")
	if o := s.ddpbatch("wait", "own-3"); o.code != 3 {
		t.Errorf("%v", o)
	}
	mustContain(t, s.ddpbatch("logs", "own-3").stdout, "sh ended with exit code 3")
	if o := s.ddpbatch("wait", id+"_0"); o.code != 0 {
		t.Errorf("%v", o)
	}
}
