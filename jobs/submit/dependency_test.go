package submit

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

// saved makes dir a run of the built-in trainer and adds a checkpoint.
func (c *cluster) saved(dir rundir.Dir, finished bool) {
	c.t.Helper()
	if err := os.WriteFile(dir.Spec(), []byte("[train]\nepochs = 2\n"), 0o600); err != nil {
		c.t.Fatal(err)
	}
	m := &checkpoint.Manifest{Run: "r", Step: 5, Epoch: 1, WorldSize: 1, Finished: finished}
	if finished {
		m.Epoch = 2
	}
	w := safetensors.Tensor{Name: "w", Shape: []int{1}, Data: []float32{1}}
	if _, err := checkpoint.Save(dir.Checkpoints(), m, checkpoint.Files{"model.safetensors": {w}}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) ended(dir rundir.Dir, job string, exit int) {
	c.t.Helper()
	if err := dir.WriteEnd(rundir.End{JobID: job, Exit: exit, Time: time.Now()}); err != nil {
		c.t.Fatal(err)
	}
}

// TestDependency checks each condition with each state of the other run. It checks the
// dependency that Slurm receives, or the error.
func TestDependency(t *testing.T) {
	const wait, met = "wait", "met"
	const never, unknown, succeeded = "is failed (NonZeroExitCode)", "no longer has job 101 of run", "has succeeded"
	exit := func(job string, code int) func(*cluster, rundir.Dir) {
		return func(c *cluster, d rundir.Dir) { c.ended(d, job, code) }
	}
	save := func(finished bool) func(*cluster, rundir.Dir) {
		return func(c *cluster, d rundir.Dir) { c.saved(d, finished) }
	}
	for _, tt := range []struct {
		name, state string // of job 101; empty if Slurm has forgotten it
		left        func(*cluster, rundir.Dir)
		// results of after, afterany, afterok, and afternotok
		after, any, ok, notok string
	}{
		{"pending", "PENDING", nil, wait, wait, wait, wait},
		{"running", "RUNNING", nil, wait, wait, wait, wait},
		{"running, finished before", "RUNNING", exit("100", 0), wait, wait, wait, wait},
		{"completing", "COMPLETING", nil, wait, wait, wait, wait},
		{"completed", "COMPLETED", nil, met, met, met, succeeded},
		{"failed", "FAILED 256 NonZeroExitCode", nil, met, met, never, met},
		{"cancelled", "CANCELLED 0", nil, met, met, "is cancelled", met},
		{"timed out", "TIMEOUT 0 TimeLimit", nil, met, met, "is timeout", met},
		{"forgotten", "", nil, met, met, unknown, unknown},
		{"forgotten, the launcher ended well", "", exit("101", 0), met, met, met, succeeded},
		{"forgotten, the launcher failed", "", exit("101", 7), met, met, "has failed", met},
		{"forgotten, an earlier launcher ended well", "", exit("100", 0), met, met, unknown, unknown},
		{"forgotten, an earlier launcher failed", "", exit("100", 7), met, met, unknown, unknown},
		{"forgotten, trained to the end", "", save(true), met, met, met, succeeded},
		{"forgotten, half trained", "", save(false), met, met, unknown, unknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.submitted(c.request(job("first", "", "")))
			c.state("101", tt.state)
			if tt.left != nil {
				tt.left(c, c.dir("first"))
			}
			for i, kind := range []string{"after", "afterany", "afterok", "afternotok"} {
				want := []string{tt.after, tt.any, tt.ok, tt.notok}[i]
				before := len(c.calls())
				_, err := c.submit(c.request(job("then-"+kind, fmt.Sprintf("dependency = [%q]", kind+":first"), "")))
				option := "--dependency=" + kind + ":101"
				switch want {
				case wait, met:
					if err != nil {
						t.Errorf("%s: %v", kind, err)
					} else if got := strings.Contains(c.calls()[before], "--dependency"); got != (want == wait) || got && !strings.Contains(c.calls()[before], option+" ") {
						t.Errorf("%s: sent as %q, and it is to %s", kind, c.calls()[before], want)
					}
				default:
					mustFail(t, err, fmt.Sprintf("job.toml:4: slurm.dependency[0] %q: ", kind+":first"), want)
					if len(c.calls()) != before {
						t.Errorf("%s: it was sent all the same", kind)
					}
				}
			}
		})
	}
}

// TestDependencyOnSomethingElse checks dependencies on runs and on jobs that ddpbatch did not
// submit.
func TestDependencyOnSomethingElse(t *testing.T) {
	c := newCluster(t)
	c.submitted(c.request(job("first", "", "")))
	c.submitted(c.request(job("second", "", "")))

	// Slurm must at least have a job that ddpbatch did not submit: some versions of Slurm
	// accept any ID and do not wait.
	_, err := c.submit(c.request(job("third", `dependency = ["after:4711"]`, "")))
	mustFail(t, err, "Slurm has no job 4711")
	c.state("4711", "RUNNING")
	r := c.submitted(c.request(job("third", `dependency = ["afterok:first", "afterany:second", "after:4711"]`, "")))
	if got := c.calls()[2]; !strings.Contains(got, " --dependency=afterok:101,afterany:102,after:4711 ") {
		t.Errorf("%+v: %q", r, got)
	}
	// If a run was submitted again, the dependency uses its last job.
	c.state("101", "FAILED 256 NonZeroExitCode")
	c.submitted(c.request(job("first", "", "")))
	c.submitted(c.request(job("fourth", `dependency = ["afterok:first"]`, "")))
	if got := c.calls()[4]; !strings.Contains(got, " --dependency=afterok:104 ") {
		t.Errorf("%q", got)
	}

	c.state("103", "COMPLETED")
	_, err = c.submit(c.request(job("third", `dependency = ["after:third"]`, "")))
	mustFail(t, err, "a run cannot wait for itself")
	_, err = c.submit(c.request(job("fifth", `dependency = ["after:nothing"]`, "")))
	mustFail(t, err, "slurm.dependency[0]", "nothing")
	if _, err := c.dir("idle").Prepare("idle", c.base, "1", nil); err == nil {
		t.Fatal("made a record in no directory")
	}
	idle, err := rundir.Create(c.dir("idle").Path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := idle.Prepare("idle", c.base, "1", nil); err != nil {
		t.Fatal(err)
	}
	_, err = c.submit(c.request(job("fifth", `dependency = ["after:idle"]`, "")))
	mustFail(t, err, "was never submitted")
	c.squeue(`echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1`)
	_, err = c.submit(c.request(job("fifth", `dependency = ["after:first"]`, "")))
	mustFail(t, err, "slurm.dependency[0]", "Unable to contact")
	if n := len(c.calls()); n != 5 {
		t.Errorf("%d calls of sbatch", n)
	}
}

// TestDependencyOnChain checks that a dependency waits for the first job of a chain to start, or for the
// last one to end.
func TestDependencyOnChain(t *testing.T) {
	for _, tt := range []struct {
		name, kind string
		state      string // of job 101; jobs 102 and 103 are pending
		waitFor    string // empty if there is nothing to wait for
	}{
		{name: "start, queued", kind: "after", state: "PENDING", waitFor: "after:101"},
		{name: "start, first job ended", kind: "after", state: "TIMEOUT"},
		{name: "end", kind: "afterok", state: "PENDING", waitFor: "afterok:103"},
		{name: "end, first job ended", kind: "afterok", state: "TIMEOUT", waitFor: "afterok:103"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			req := c.request(job("first", "", ""))
			req.Chain = 3
			c.submitted(req)
			c.state("101", tt.state)
			c.submitted(c.request(job("then", fmt.Sprintf("dependency = [%q]", tt.kind+":first"), "")))
			_, option, _ := strings.Cut(c.calls()[3], "--dependency=")
			if got, _, _ := strings.Cut(option, " "); got != tt.waitFor {
				t.Errorf("waits for %q; want %q", got, tt.waitFor)
			}
		})
	}
}

// TestDependencyOnSweep checks that a dependency on a sweep uses the last job of each trial.
func TestDependencyOnSweep(t *testing.T) {
	const failed, running, done = "FAILED 256 NonZeroExitCode", "RUNNING", "COMPLETED"
	for _, tt := range []struct {
		name    string
		states  [3]string // of the trials of array 101; empty if forgotten
		again   string    // state of 102_1, the second submission of trial 1
		kind    string
		waitFor string // expected option; empty if there is nothing to wait for
		fails   string
	}{
		{name: "all queued", states: [3]string{"PENDING", "PENDING", "PENDING"}, kind: "afterok", waitFor: "afterok:101"},
		{name: "some done", states: [3]string{done, running, running}, kind: "afterok", waitFor: "afterok:101_1:101_2"},
		{name: "all done", states: [3]string{done, done, done}, kind: "afterok"},
		{name: "one failed", states: [3]string{done, failed, running}, kind: "afterok", fails: "job 101_1 of run"},
		{name: "one failed, any end", states: [3]string{done, failed, running}, kind: "afterany", waitFor: "afterany:101_2"},
		{name: "one is submitted again", states: [3]string{done, failed, running}, again: running, kind: "afterok", waitFor: "afterok:102_1:101_2"},
		{name: "one was submitted again and has completed", states: [3]string{done, failed, done}, again: done, kind: "afterok"},
		{name: "forgotten", states: [3]string{done, "", done}, kind: "afterok", fails: "no longer has job 101_1"},
		{name: "forgotten, any end", states: [3]string{"", "", ""}, kind: "afterany"},
		{name: "start, some queued", states: [3]string{done, running, "PENDING"}, kind: "after", waitFor: "after:101_1:101_2"},
		{name: "failure, all queued", states: [3]string{"PENDING", "PENDING", "PENDING"}, kind: "afternotok", waitFor: "afternotok:101"},
		{name: "failure, some done", states: [3]string{done, running, running}, kind: "afternotok", waitFor: "afternotok:101"},
		{name: "failure, one failed", states: [3]string{done, failed, running}, kind: "afternotok", waitFor: "afterany:101_2"},
		{name: "failure, one failed and all ended", states: [3]string{done, failed, done}, kind: "afternotok"},
		{name: "failure, all done", states: [3]string{done, done, done}, kind: "afternotok", fails: "has succeeded"},
		{name: "failure, two jobs", states: [3]string{done, failed, running}, again: running, kind: "afternotok", fails: "wait for one of several jobs to fail"},
		{name: "failure, one is left", states: [3]string{done, failed, done}, again: running, kind: "afternotok", waitFor: "afternotok:102_1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.submitted(c.request(swept))
			for i, s := range tt.states {
				c.state(fmt.Sprint("101_", i), s)
			}
			if tt.again != "" {
				req := c.request(swept)
				req.Elements = []int{1}
				c.submitted(req)
				c.state("102_1", tt.again)
			}
			sent := len(c.calls())
			_, err := c.submit(c.request(job("then", fmt.Sprintf("dependency = [%q]", tt.kind+":s"), "")))
			if tt.fails != "" {
				mustFail(t, err, tt.fails)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			_, option, _ := strings.Cut(c.calls()[sent], "--dependency=")
			if got, _, _ := strings.Cut(option, " "); got != tt.waitFor {
				t.Errorf("waits for %q; want %q", got, tt.waitFor)
			}
		})
	}
}
