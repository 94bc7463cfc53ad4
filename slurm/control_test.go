package slurm

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestCancel checks the arguments of scancel for jobs, array tasks, and steps.
func TestCancel(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{"scancel": record})
	for _, err := range []error{
		fake.Cancel(t.Context(), "12"),
		fake.Cancel(t.Context(), "18_3"),
		fake.KillStep(t.Context(), "12.0"),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	want := [][]string{
		{"scancel", "--quiet", "12"},
		{"scancel", "--quiet", "18_3"},
		{"scancel", "--quiet", "--signal=KILL", "12.0"},
	}
	for name, err := range map[string]error{
		"option":          fake.Cancel(t.Context(), "--me"),
		"empty ID":        fake.Cancel(t.Context(), ""),
		"range of tasks":  fake.Cancel(t.Context(), "18_[1-2]"),
		"job as step":     fake.KillStep(t.Context(), "12"),
		"batch step":      fake.KillStep(t.Context(), "12.batch"),
		"option as step":  fake.KillStep(t.Context(), "--me.1"),
		"option and step": fake.KillStep(t.Context(), "x.1"),
	} {
		if err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
	if got := fake.calls(t); !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got calls %q, want %q", got, want)
	}
}

// TestCancelUnknownJob checks that the error names the job and has Slurm's message.
func TestCancelUnknownJob(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{
		"scancel": `echo 'scancel: error: Kill job error on job id 12: Invalid job id specified' >&2; exit 1`,
	})
	for name, err := range map[string]error{"12": fake.Cancel(t.Context(), "12"), "12.0": fake.KillStep(t.Context(), "12.0")} {
		if !errors.As(err, new(*CommandError)) || !strings.Contains(err.Error(), " "+name+": ") || !strings.Contains(err.Error(), "Invalid job id") {
			t.Errorf("%s: got error %v", name, err)
		}
	}
}

// TestRequeue checks the arguments of scontrol, and that invalid job IDs are rejected.
func TestRequeue(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{"scontrol": record})
	for _, id := range []string{"12", "18_3"} {
		if err := fake.Requeue(t.Context(), id, 0); err != nil {
			t.Error(err)
		}
	}
	for _, id := range []string{"", "--all", "18_[1-2]"} {
		if err := fake.Requeue(t.Context(), id, 0); err == nil {
			t.Errorf("requeued %q", id)
		}
	}
	want := [][]string{{"scontrol", "requeue", "12"}, {"scontrol", "requeue", "18_3"}}
	if got := fake.calls(t); !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got calls %q, want %q", got, want)
	}
	if err := (Client{}).Requeue(t.Context(), "12", 0); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("got %v, want exec.ErrNotFound", err)
	}
}

// TestRequeueWithoutReply checks a requeue without a reply. When Slurm requeues a job, it kills
// the processes of the batch script, including the scontrol that requested it. The result then
// depends on the state of the job.
func TestRequeueWithoutReply(t *testing.T) {
	const (
		isRunning  = "JobState=RUNNING Restarts=1"
		isRequeued = "JobState=COMPLETING Restarts=2"
		isCanceled = "JobState=CANCELLED Restarts=1"
		once       = `test -e "$FAKE/once" || { : >"$FAKE/once"; `
		show       = `/bin/cat "$FAKE/job"`
		accept     = `echo "` + isRequeued + `" >"$FAKE/job"` + "\n"
		die        = `kill -TERM $$`
		noReply    = `echo "slurm_requeue error: Unable to contact slurm controller (connect failure)" >&2; exit 1`
		reject     = `echo "Requested operation is presently disabled for job 7" >&2; exit 1`
		unknownJob = `echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1`
	)
	for name, tt := range map[string]struct {
		job           string // output of scontrol show
		requeue, show string // commands of scontrol requeue and scontrol show
		requests      int
		err           string // part of the error; empty for success
	}{
		"killed after the request":           {job: isRunning, requeue: accept + die, show: show, requests: 1},
		"show is killed":                     {job: isRunning, requeue: accept + die, show: once + die + "; }; " + show, requests: 1},
		"killed before the request":          {job: isRunning, requeue: once + die + "; }; " + accept, show: show, requests: 2},
		"controller down":                    {job: isRunning, requeue: once + noReply + "; }; " + accept, show: show, requests: 2},
		"rejected after an accepted request": {job: isRequeued, requeue: reject, show: show, requests: 1},
		"rejected":                           {job: isRunning, requeue: reject, show: show, requests: 1, err: "presently disabled"},
		"job canceled meanwhile":             {job: isCanceled, requeue: die, show: show, requests: 1, err: "signal: terminated"},
		"unknown job":                        {job: isRunning, requeue: reject, show: unknownJob, requests: 1, err: "presently disabled"},
		"killed, and the job is unknown":     {job: isRunning, requeue: die, show: unknownJob, requests: 1, err: "signal: terminated"},
	} {
		t.Run(name, func(t *testing.T) {
			fake := newFakeSlurm(t, map[string]string{"scontrol": record + "if test $1 = show; then\n" + tt.show + "\nelse\n" + tt.requeue + "\nfi"})
			if err := os.WriteFile(filepath.Join(fake.dir, "job"), []byte(tt.job+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				err := fake.Requeue(t.Context(), "7", 1)
				if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) || errors.As(err, new(*NoReplyError)) {
					t.Errorf("got error %v, want %q", err, tt.err)
				}
			})
			requests := 0
			for _, call := range fake.calls(t) {
				if call[1] == "requeue" {
					requests++
				}
			}
			if requests != tt.requests {
				t.Errorf("got %d requests, want %d", requests, tt.requests)
			}
		})
	}
}

// TestRequeueTimeout checks that a lost response is reported as such after several queries.
func TestRequeueTimeout(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{"scontrol": record + `kill -TERM $$`})
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
		defer cancel()
		var noReply *NoReplyError
		if err := fake.Requeue(ctx, "7", 1); !errors.As(err, &noReply) || noReply.ID != "7" || !errors.As(err, new(*CommandError)) {
			t.Errorf("got error %v, want a *NoReplyError of a *CommandError", err)
		}
		if elapsed := time.Since(start); elapsed != 50*time.Second {
			t.Errorf("returned after %s, want 50s", elapsed)
		}
	})
	// One request, and queries after 0, 1, 3, 7, 15, 30, and 45 s.
	if calls := fake.calls(t); len(calls) != 8 {
		t.Errorf("got %d calls, want 8: %q", len(calls), calls)
	}
}

func readTestdata(t *testing.T, elements ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{"testdata"}, elements...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestPreemptionOf checks the preemption settings in the output of `scontrol show job --oneliner`
// of Slurm 22.05.8.
func TestPreemptionOf(t *testing.T) {
	for name, want := range map[string]Preemption{
		"running": NotPreempted, "grace": Preempted, "completing": AllocationRevoked, "requeued": AllocationRevoked,
	} {
		if got := preemptionOf(parseFields(readTestdata(t, "preemption", name+".txt")), 0); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	for _, tt := range []struct{ name, fields string }{
		{name: "field in a command", fields: "JobState=RUNNING Restarts=1 PreemptTime=None Command=/x PreemptTime=2026-11-21T17:26:49"},
		{name: "fields in a name", fields: "JobId=7 JobName=x PreemptTime=2026-11-21T17:26:49 JobState=COMPLETING Restarts=9 UserId=ada(1000) JobState=RUNNING Restarts=2 PreemptTime=None"},
		{name: "canceled", fields: "JobState=CANCELLED Restarts=2 PreemptTime=None"},
		{name: "completing", fields: "JobState=COMPLETING Restarts=2 PreemptTime=None"},
		{name: "timeout", fields: "JobState=TIMEOUT Restarts=2 PreemptTime=None"},
		{name: "running after a requeue", fields: "JobState=RUNNING Restarts=3 PreemptTime=None"},
	} {
		if got := preemptionOf(parseFields(tt.fields), 2); got != NotPreempted {
			t.Errorf("%s: got %q, want not preempted", tt.name, got)
		}
	}
}

// TestPreemption checks whether a preempted job must request its requeue. Since 24.05, slurmctld
// requeues a job that exits in its GraceTime, if its preemption mode is REQUEUE; the job must then
// not request it. The files are from Slurm 24.11.5.
func TestPreemption(t *testing.T) {
	read := func(name string) string { return readTestdata(t, "preemption-24.11", name+".txt") }
	job, config, partition := read("grace"), read("config"), read("partition")
	replace := strings.ReplaceAll
	cancels := replace(partition, "PreemptMode=REQUEUE", "PreemptMode=CANCEL")
	byQOS := replace(config, "preempt/partition_prio", "preempt/qos")
	jobWithQOS := replace(job, "QOS=(null)", "QOS=scavenger")
	for name, tt := range map[string]struct {
		job, config, partition, sacctmgr string
		want                             Preemption
	}{
		"24.11":                       {job: job, config: config, partition: partition, want: PreemptedRequeued},
		"24.05":                       {job: job, config: replace(config, "24.11.5", "24.05.0"), partition: partition, want: PreemptedRequeued},
		"24.04":                       {job: job, config: replace(config, "24.11.5", "24.04.0"), partition: partition, want: Preempted},
		"25.01":                       {job: job, config: replace(config, "24.11.5", "25.01.0"), partition: partition, want: PreemptedRequeued},
		"26.05":                       {job: job, config: replace(config, "24.11.5", "26.05.3"), partition: partition, want: PreemptedRequeued},
		"23.11":                       {job: job, config: replace(config, "24.11.5", "23.11.10"), partition: partition, want: Preempted},
		"22.05":                       {job: job, config: replace(config, "24.11.5", "22.05.8"), partition: partition, want: Preempted},
		"unknown version":             {job: job, config: replace(config, "24.11.5", "x"), partition: partition, want: Preempted},
		"no configuration":            {job: job, partition: partition, want: Preempted},
		"partition cancels":           {job: job, config: config, partition: cancels, want: Preempted},
		"no partition":                {job: job, config: config, want: PreemptedRequeued},
		"requeue disabled":            {job: replace(job, "Requeue=1", "Requeue=0"), config: config, partition: partition, want: Preempted},
		"not preempted":               {job: read("running"), config: config, partition: partition, want: NotPreempted},
		"requeued":                    {job: read("requeued"), config: config, partition: partition, want: AllocationRevoked},
		"QOS requeues":                {job: jobWithQOS, config: replace(byQOS, "= REQUEUE", "= CANCEL"), sacctmgr: "echo requeue", want: PreemptedRequeued},
		"QOS cancels":                 {job: jobWithQOS, config: byQOS, sacctmgr: "echo cancel", want: Preempted},
		"QOS like the cluster":        {job: jobWithQOS, config: byQOS, sacctmgr: "echo cluster", want: PreemptedRequeued},
		"job without QOS":             {job: job, config: byQOS, sacctmgr: "echo cancel", want: PreemptedRequeued},
		"QOS without a mode":          {job: jobWithQOS, config: byQOS, sacctmgr: "true", want: PreemptedRequeued},
		"sacctmgr fails":              {job: jobWithQOS, config: byQOS, sacctmgr: "exit 1", want: PreemptedRequeued},
		"sacctmgr fails after output": {job: jobWithQOS, config: byQOS, sacctmgr: "echo cancel; exit 1", want: PreemptedRequeued},
		"gang scheduling":             {job: jobWithQOS, config: replace(byQOS, "= REQUEUE", "= GANG,REQUEUE"), sacctmgr: "exit 1", want: PreemptedRequeued},
	} {
		t.Run(name, func(t *testing.T) {
			programs := map[string]string{"scontrol": `/bin/cat "$FAKE/$2"`}
			if tt.sacctmgr != "" {
				programs["sacctmgr"] = tt.sacctmgr
			}
			fake := newFakeSlurm(t, programs)
			for name, text := range map[string]string{"job": tt.job, "config": tt.config, "partition": tt.partition} {
				if text == "" {
					continue // scontrol fails
				}
				if err := os.WriteFile(filepath.Join(fake.dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := fake.Preemption(t.Context(), "1", 0)
			if err != nil || got != tt.want {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
		})
	}
	fake := newFakeSlurm(t, map[string]string{"scontrol": "exit 1"})
	for _, id := range []string{"1", "--all"} {
		if got, err := fake.Preemption(t.Context(), id, 0); err == nil || got != NotPreempted {
			t.Errorf("job %s: got %q, %v, want an error", id, got, err)
		}
	}
}

// FuzzPreemption checks that only running jobs count as preempted.
func FuzzPreemption(f *testing.F) {
	f.Add("JobState=RUNNING Restarts=0 PreemptTime=2026-11-21T17:26:49", 0)
	f.Fuzz(func(t *testing.T, out string, restarts int) {
		if got := preemptionOf(parseFields(out), restarts); got == Preempted && !strings.Contains(out, "JobState=RUNNING") {
			t.Errorf("%q: got %q", out, got)
		}
	})
}
