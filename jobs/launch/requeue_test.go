package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// inJob are the options of a launcher inside job 7, with shell scripts for Slurm's
// programs, which find their folder in FAKE.
func inJob(t *testing.T, job string, programs map[string]string) (o Options, dir string, said *[]string) {
	t.Helper()
	dir = t.TempDir()
	for name, body := range programs {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	j, err := jobs.Parse("job.toml", []byte(job))
	if err != nil {
		t.Fatal(err)
	}
	said = new([]string)
	return Options{Job: j, Allocation: &slurm.Allocation{JobID: "7"}, Slurm: slurm.Client{Environ: []string{"PATH=" + dir + ":/bin:/usr/bin", "FAKE=" + dir}},
		Say: func(line string) { *said = append(*said, line) }}, dir, said
}

const (
	trains = `name = "x"
[restart]
requeue = 2
[train]
epochs = 1
batch = 1
[train.model]
kind = "linear"
[train.data]
kind = "synthetic"
task = "regression"
samples = 4
inputs = 1
outputs = 1
[train.optimizer]
kind = "sgd"
lr = 0.1
`
	runs = `name = "x"
[restart]
requeue = 2
[command]
argv = ["true"]
`
)

func TestRequeue(t *testing.T) {
	const takes, refuses = `echo "$@" >>"$FAKE/asked"`, `echo "scontrol: error: Requested operation is presently disabled" >&2; exit 1`
	for name, tt := range map[string]struct {
		job, scontrol string
		restarts      int
		task          string
		result        Result
		asked, said   string
	}{
		"a training":          {trains, takes, 0, "", Result{Exit: 3, NearEnd: true, Progress: true}, "requeue 7", "requeued as job 7 (1 of 2)"},
		"the second time":     {trains, takes, 1, "", Result{Exit: 3, NearEnd: true, Progress: true}, "requeue 7", "requeued as job 7 (2 of 2)"},
		"an array's element":  {trains, takes, 0, "3", Result{Exit: 3, NearEnd: true, Progress: true}, "requeue 5_3", "requeued as job 5_3 (1 of 2)"},
		"often enough":        {trains, takes, 2, "", Result{Exit: 3, NearEnd: true, Progress: true}, "", "WARNING: not requeued: the job has been started 2 times again, and restart.requeue is 2; submit it again to go on"},
		"no progress":         {trains, takes, 0, "", Result{Exit: 3, NearEnd: true}, "", "WARNING: not requeued: there is no newer checkpoint than when the job started; slurm.time is too short, or checkpoint.every too long"},
		"finished":            {trains, takes, 0, "", Result{Exit: 0, NearEnd: true, Progress: true}, "", ""},
		"stopped by a person": {trains, takes, 0, "", Result{Exit: 3, Progress: true}, "", ""},
		"not asked for":       {strings.Replace(trains, "requeue = 2", "requeue = 0", 1), takes, 0, "", Result{Exit: 3, NearEnd: true, Progress: true}, "", ""},
		"refused": {trains, refuses, 0, "", Result{Exit: 3, NearEnd: true, Progress: true}, "",
			"WARNING: not requeued: requeueing job 7: scontrol failed (exit status 1): scontrol: error: Requested operation is presently disabled; submit it again to go on"},
		"a program that ended well": {runs, takes, 0, "", Result{Exit: 0, NearEnd: true}, "requeue 7", "requeued as job 7 (1 of 2)"},
		"a program that was killed": {runs, takes, 0, "", Result{Exit: 138, NearEnd: true}, "requeue 7", "requeued as job 7 (1 of 2)"},
		"a program that failed":     {runs, takes, 0, "", Result{Exit: 1, NearEnd: true}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			o, dir, said := inJob(t, tt.job, map[string]string{"scontrol": tt.scontrol})
			o.Allocation.RestartCount = tt.restarts
			if tt.task != "" {
				o.Allocation.ArrayJobID, o.Allocation.ArrayTask = "5", tt.task
			}
			Requeue(t.Context(), o, tt.result)
			asked, _ := os.ReadFile(filepath.Join(dir, "asked"))
			if got := strings.TrimSpace(string(asked)); got != tt.asked {
				t.Errorf("scontrol was called with %q, want %q", got, tt.asked)
			}
			if got := strings.Join(*said, "\n"); got != tt.said {
				t.Errorf("said %q\nwant %q", got, tt.said)
			}
		})
	}
}

func TestNearEnd(t *testing.T) {
	// squeue's columns: id, array, task, state, nodes, time, start, end, restarts, code, reason, name.
	squeue := func(end string) string {
		return `test "$1" != --json || exit 1; echo "7|7|N/A|RUNNING|n1|0:10|2026-01-01T00:00:00|"` + end + `"|0|0:0|None|x"`
	}
	in := func(d time.Duration) string { return time.Now().Add(d).Format("2006-01-02T15:04:05") }
	for name, tt := range map[string]struct {
		told   time.Duration // in SLURM_JOB_END_TIME
		squeue string
		near   bool
	}{
		"told":         {3 * time.Second, squeue(in(3 * time.Second)), true},
		"past already": {time.Second, squeue(in(time.Second)), true},
		"made longer":  {3 * time.Second, squeue(in(time.Hour)), false},
		"does not say": {3 * time.Second, "exit 1", true},
		"has no end":   {3 * time.Second, squeue("N/A"), false},
		"is far":       {time.Hour, squeue(in(time.Hour)), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, _, _ := inJob(t, strings.Replace(trains, "[restart]", "[slurm]\ntime = \"1:00:00\"\nsignal_before_end = \"2s\"\n[restart]", 1), map[string]string{"squeue": tt.squeue, "sacct": "exit 1"})
			o.Environ = []string{fmt.Sprintf("SLURM_JOB_END_TIME=%d", time.Now().Add(tt.told).Unix())}
			near := o.nearEnd(t.Context())
			select {
			case <-near:
				if !tt.near {
					t.Error("the end is said to be near")
				}
			case <-time.After(6 * time.Second):
				if tt.near {
					t.Error("the end came unnoticed")
				}
			}
		})
	}
	o, _, _ := inJob(t, trains, nil)
	o.Allocation = nil
	if o.nearEnd(t.Context()) != nil {
		t.Error("without Slurm there is an end")
	}
}
