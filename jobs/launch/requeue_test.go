package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

// inJob returns the options of a launcher inside job 7. Shell scripts replace Slurm's
// commands. They find their directory in the variable FAKE.
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
	return Options{Job: j, Dir: rundir.Dir{Path: dir}, Allocation: &slurm.Allocation{JobID: "7"}, Slurm: slurm.Client{Environ: []string{"PATH=" + dir + ":/bin:/usr/bin", "FAKE=" + dir}},
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

// Output of `scontrol show job`.
const (
	goesOn    = "JobState=RUNNING Restarts=0 PreemptTime=None"
	inGrace   = "JobState=RUNNING Restarts=0 PreemptTime=2026-11-21T17:35:25"
	takenBack = "JobState=COMPLETING Restarts=1 StartTime=2026-11-21T17:35:25"
)

// TestRequeue checks when the launcher requeues a job and when Slurm does, for messages of
// different versions.
func TestRequeue(t *testing.T) {
	const (
		shows   = `test "$1" != show || { cat "$FAKE/job"; exit; }; `
		takes   = shows + `echo "$@" >>"$FAKE/asked"`
		refuses = shows + `echo "scontrol: error: Requested operation is presently disabled" >&2; exit 1`
	)
	// Literal messages of scontrol 24.11.
	recorded := func(name string) string {
		text, err := os.ReadFile(filepath.Join("../../slurm/testdata/preemption-24.11", name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	const answers2411 = `case "$1 $2" in "show config") cat "$FAKE/config"; exit;; "show partition") cat "$FAKE/partition"; exit;; esac; ` + takes
	const slurmRequeues = "Slurm requeues job 7 when this script ends (it is preempted)"
	grace2411 := recorded("grace")
	stopped := Result{Exit: 3, NearEnd: true}
	failed := Result{Exit: 1, Failure: &rendezvous.Failure{Rank: 0}}
	not := func(text string) string { return strings.Replace(text, "requeue = 2", "requeue = 0", 1) }
	fails := func(text string) string { return strings.Replace(text, "requeue = 2", "on_failure = 2", 1) }
	for name, tt := range map[string]struct {
		job, scontrol, shown string
		restarts             int
		task                 string
		further              bool
		result               Result
		asked, said          string
		exit                 int
	}{
		"a training":          {trains, takes, goesOn, 0, "", true, stopped, "requeue 7", "requeued as job 7 (1 of 2)", 3},
		"the second time":     {trains, takes, goesOn, 1, "", true, stopped, "requeue 7", "requeued as job 7 (2 of 2)", 3},
		"an array's element":  {trains, takes, goesOn, 0, "3", true, stopped, "requeue 5_3", "requeued as job 5_3 (1 of 2)", 3},
		"often enough":        {trains, takes, goesOn, 2, "", true, stopped, "", "warning: not requeued: the job has been restarted 2 times, and restart.requeue is 2; submit it again to resume", 3},
		"no progress":         {trains, takes, goesOn, 0, "", false, stopped, "", "warning: not requeued: there is no newer checkpoint than when the job started; increase slurm.time, or decrease checkpoint.every", 3},
		"finished":            {trains, takes, inGrace, 0, "", true, Result{Exit: 0, NearEnd: true}, "", "", 0},
		"stopped by a person": {trains, takes, goesOn, 0, "", true, Result{Exit: 3}, "", "", 3},
		"ended by a person":   {trains, takes, inGrace, 0, "", true, Result{Exit: exitCanceled}, "", "", exitCanceled},
		"not asked for":       {not(trains), takes, goesOn, 0, "", true, stopped, "", "", 3},
		"refused": {trains, refuses, goesOn, 0, "", true, stopped, "",
			"warning: not requeued: requeue job 7: scontrol failed (exit status 1): scontrol: error: Requested operation is presently disabled; submit it again to resume", 3},
		"no scontrol, as in a container": {trains, "", "", 0, "", true, stopped, "",
			"warning: not requeued: requeue job 7: scontrol: not found in PATH; submit it again to resume", 3},
		"no scontrol, and a program": {runs, "", "", 0, "", false, Result{Exit: 0, NearEnd: true}, "",
			"warning: not requeued: requeue job 7: scontrol: not found in PATH; submit it again to resume", 3},
		"a controller that does not answer": {not(trains), "exit 1", "", 0, "", true, Result{Exit: 3}, "",
			"warning: cannot determine whether the job is preempted: query preemption of job 7: scontrol failed (exit status 1)", 3},
		"a program that ended well":  {runs, takes, goesOn, 0, "", false, Result{Exit: 0, NearEnd: true}, "requeue 7", "requeued as job 7 (1 of 2)", 3},
		"a program that was killed":  {runs, takes, goesOn, 0, "", false, Result{Exit: 138, NearEnd: true}, "requeue 7", "requeued as job 7 (1 of 2)", 3},
		"a program that failed":      {runs, takes, goesOn, 0, "", false, Result{Exit: 1, NearEnd: true}, "", "", 1},
		"a program that is finished": {runs, takes, goesOn, 0, "", false, Result{Exit: 0}, "", "", 0},

		"preempted":                           {not(trains), takes, inGrace, 0, "", false, Result{Exit: 3}, "requeue 7", "requeued as job 7 (it is preempted)", 3},
		"preempted, with a signal":            {not(trains), takes, inGrace, 0, "", false, stopped, "requeue 7", "requeued as job 7 (it is preempted)", 3},
		"preempted as often as it likes":      {trains, takes, inGrace, 9, "", false, stopped, "requeue 7", "requeued as job 7 (it is preempted)", 3},
		"preempted, and ranks failed over it": {not(trains), takes, inGrace, 0, "", false, failed, "requeue 7", "requeued as job 7 (it is preempted)", 1},
		"a program is preempted":              {not(runs), takes, inGrace, 0, "", false, Result{Exit: 143}, "requeue 7", "requeued as job 7 (it is preempted)", 3},
		"preempted on 24.11":                  {not(trains), answers2411, grace2411, 0, "", false, Result{Exit: 3}, "", slurmRequeues, 3},
		"a program is preempted on 24.11":     {not(runs), answers2411, grace2411, 0, "", false, Result{Exit: 143}, "", slurmRequeues, 3},
		"ranks failed over it on 24.11":       {not(trains), answers2411, grace2411, 0, "", false, failed, "", slurmRequeues, 1},
		"time limit on 24.11":                 {trains, answers2411, goesOn, 0, "", true, stopped, "requeue 7", "requeued as job 7 (1 of 2)", 3},
		"no requeue of its own on 24.11":      {not(trains), answers2411, strings.Replace(grace2411, "Requeue=1", "Requeue=0", 1), 0, "", false, Result{Exit: 3}, "requeue 7", "requeued as job 7 (it is preempted)", 3},
		"requeued by Slurm":                   {not(trains), takes, takenBack, 0, "", false, Result{Exit: 3}, "", "Slurm has revoked the allocation, and decides whether to requeue the job", 3},
		"requeued by Slurm before":            {not(trains), takes, takenBack, 1, "", false, Result{Exit: 3}, "", "", 3},
		"failed":                              {fails(trains), takes, goesOn, 0, "", true, failed, "requeue 7", "requeued as job 7 (after a failure, 1 of 2)", 1},
		"failed often enough":                 {fails(trains), takes, goesOn, 2, "", true, failed, "", "warning: not requeued: the job has been restarted 2 times, and restart.on_failure is 2; submit it again to resume", 1},
		"failed without progress":             {fails(trains), takes, goesOn, 0, "", false, failed, "", "warning: not requeued after the failure: there is no newer checkpoint than when the job started", 1},
		"failed after a stop request":         {fails(trains), takes, goesOn, 0, "", true, Result{Exit: 1, Failure: failed.Failure, StopRequested: true}, "", "", 1},
		"failed near the time limit":          {fails(trains), takes, goesOn, 0, "", true, Result{Exit: 1, Failure: failed.Failure, NearEnd: true, StopRequested: true}, "", "", 1},
		"stopped, not failed":                 {fails(trains), takes, goesOn, 0, "", true, stopped, "", "", 3},
		"failed, and not asked for":           {trains, takes, goesOn, 0, "", true, failed, "", "", 1},
		"a program failed":                    {fails(runs), takes, goesOn, 0, "", true, failed, "requeue 7", "requeued as job 7 (after a failure, 1 of 2)", 1},
		"a program failed at an old step":     {fails(runs), takes, goesOn, 1, "", false, failed, "", "warning: not requeued after the failure: the program reported no later step than in earlier attempts", 1},
		"nodes were lost": {not(trains), takes, goesOn, 0, "", false, Result{Exit: 4, Failure: failed.Failure, NodesLost: true}, "requeue 7",
			"requeued as job 7 (too few nodes are left)", 4},
	} {
		t.Run(name, func(t *testing.T) {
			programs := map[string]string{"scontrol": tt.scontrol}
			if tt.scontrol == "" {
				programs = nil
			}
			o, dir, said := inJob(t, tt.job, programs)
			if err := os.WriteFile(filepath.Join(dir, "job"), []byte(tt.shown), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"config", "partition"} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(recorded(name)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if programs == nil {
				o.Slurm.Environ = []string{"PATH=" + dir}
			}
			o.Allocation.RestartCount = tt.restarts
			if tt.task != "" {
				o.Allocation.ArrayJobID, o.Allocation.ArrayTask = "5", tt.task
			}
			saved := &progress{ctx: t.Context(), dir: dir, ready: true, initialStep: 4, newestStep: 4}
			if tt.further && o.Job.Command != nil {
				saved.programStep = 1
			} else if tt.further {
				saved.newestStep = 5
			}
			r := o.finalizeResult(t.Context(), tt.result, saved)
			Requeue(t.Context(), o, r)
			if r.Exit != tt.exit {
				t.Errorf("exit code %d, want %d", r.Exit, tt.exit)
			}
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

// TestRequeueThatKillsItsOwnRequest checks what the launcher reports if scontrol is killed while it
// requests the requeue, as by the requeue itself. The state of the job decides. The outcome stays
// unknown until Slurm replies, and an unknown outcome is not recorded as a requeue.
func TestRequeueThatKillsItsOwnRequest(t *testing.T) {
	const die = "kill -TERM $$"
	for _, tt := range []struct {
		name, scontrol string
		said, not      string
		requeued       bool
	}{
		{"requeued", `test "$1" != show || { echo "` + takenBack + `"; exit; }; ` + die, "requeued as job 7 (1 of 2)", "warning", true},
		{"no reply", die, "warning: cannot determine whether the job is requeued: ", "not requeued", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o, _, said := inJob(t, trains, map[string]string{"scontrol": tt.scontrol})
			synctest.Test(t, func(t *testing.T) {
				Requeue(t.Context(), o, Result{Exit: exitStopped, NearEnd: true, Progress: true})
			})
			if got := strings.Join(*said, "\n"); !strings.HasPrefix(got, tt.said) || strings.Contains(got, tt.not) || strings.Contains(got, "squeue --jobs=7") == tt.requeued {
				t.Errorf("said %q", got)
			}
			events, err := o.Dir.ReadAttempts()
			if err != nil || (len(events) == 1 && events[0].Event == rundir.JobRequeued) != tt.requeued {
				t.Errorf("recorded %+v, %v", events, err)
			}
		})
	}
}

// TestNearEnd checks how the launcher detects that the time limit is near.
func TestNearEnd(t *testing.T) {
	// Columns of squeue: ID, array, task, state, nodes, time, start, end, restarts, code,
	// reason.
	squeue := func(end string) string {
		return `echo "7|7|N/A|RUNNING|n1|0:10|2026-01-01T00:00:00|"` + end + `"|0|0:0|None"`
	}
	in := func(d time.Duration) string { return time.Now().Add(d).Format("2006-01-02T15:04:05") }
	for name, tt := range map[string]struct {
		told   time.Duration // end time in SLURM_JOB_END_TIME
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
			near := o.watchTimeLimit(t.Context())
			if tt.near {
				<-near
				return
			}
			select {
			case <-near:
				t.Error("the end is said to be near")
			case <-time.After(6 * time.Second):
			}
		})
	}
	o, _, _ := inJob(t, trains, nil)
	o.Allocation = nil
	if o.watchTimeLimit(t.Context()) != nil {
		t.Error("without Slurm there is an end")
	}
}

// TestMPIWithoutSlurm checks that an MPI job without srun fails before any rank starts.
func TestMPIWithoutSlurm(t *testing.T) {
	o, _, _ := inJob(t, strings.Replace(trains, "epochs = 1", "epochs = 1\nbackend = \"mpi\"", 1), nil)
	o.Allocation = nil
	_, err := Run(t.Context(), o)
	var coded interface{ ExitCode() int }
	if !errors.As(err, &coded) || coded.ExitCode() != 2 || hints.Of(err) == "" || !strings.Contains(err.Error(), `train.backend = "mpi", needs srun`) {
		t.Errorf("got %v", err)
	}
}
