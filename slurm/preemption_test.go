package slurm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The four files are what `scontrol show job --oneliner` of 22.05.8 printed.
func TestPreemptionOf(t *testing.T) {
	for name, want := range map[string]Preemption{
		"running": NotPreempted, "grace": Preempted, "completing": TakenBack, "requeued": TakenBack,
	} {
		text, err := os.ReadFile(filepath.Join("testdata", "preemption", name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		if got := preemptionOf(parseFields(string(text)), 0); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := preemptionOf(parseFields("JobState=RUNNING Restarts=1 PreemptTime=None Command=/x PreemptTime=2026-11-21T17:26:49"), 1); got != NotPreempted {
		t.Errorf("a command that looks like a field: %q", got)
	}
	// scancel, and a time limit.
	for _, state := range []string{"CANCELLED", "COMPLETING", "TIMEOUT"} {
		if got := preemptionOf(parseFields("JobState="+state+" Restarts=2 PreemptTime=None"), 2); got != NotPreempted {
			t.Errorf("%s: %q", state, got)
		}
	}
}

// Since 24.05 slurmctld requeues a job that ends in its GraceTime, if its preemption mode
// is REQUEUE: the job must not ask for it, too. The recorded files are what scontrol of
// 24.11.5 showed.
func TestWhoRequeuesPreemptedJob(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join("testdata", "preemption-24.11", name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	job, config, partition := read("grace"), read("config"), read("partition")
	replace := strings.ReplaceAll
	cancels := replace(partition, "PreemptMode=REQUEUE", "PreemptMode=CANCEL")
	byQOS := replace(config, "preempt/partition_prio", "preempt/qos")
	jobWithQOS := replace(job, "QOS=(null)", "QOS=scavenger")
	for name, tt := range map[string]struct {
		job, config, partition, sacctmgr string
		want                             Preemption
	}{
		"24.11":                          {job: job, config: config, partition: partition, want: PreemptedRequeued},
		"24.05":                          {job: job, config: replace(config, "24.11.5", "24.05.0"), partition: partition, want: PreemptedRequeued},
		"26.05":                          {job: job, config: replace(config, "24.11.5", "26.05.3"), partition: partition, want: PreemptedRequeued},
		"23.11":                          {job: job, config: replace(config, "24.11.5", "23.11.10"), partition: partition, want: Preempted},
		"22.05":                          {job: job, config: replace(config, "24.11.5", "22.05.8"), partition: partition, want: Preempted},
		"a version that is not known":    {job: job, config: replace(config, "24.11.5", "x"), partition: partition, want: Preempted},
		"no configuration":               {job: job, partition: partition, want: Preempted},
		"a partition that cancels":       {job: job, config: config, partition: cancels, want: Preempted},
		"no partition: the cluster's":    {job: job, config: config, want: PreemptedRequeued},
		"the job is not to be requeued":  {job: replace(job, "Requeue=1", "Requeue=0"), config: config, partition: partition, want: Preempted},
		"not in its grace time":          {job: read("running"), config: config, partition: partition, want: NotPreempted},
		"requeued":                       {job: read("requeued"), config: config, partition: partition, want: TakenBack},
		"a QOS that requeues":            {job: jobWithQOS, config: replace(byQOS, "= REQUEUE", "= CANCEL"), sacctmgr: "echo requeue", want: PreemptedRequeued},
		"a QOS that cancels":             {job: jobWithQOS, config: byQOS, sacctmgr: "echo cancel", want: Preempted},
		"a QOS like the cluster":         {job: jobWithQOS, config: byQOS, sacctmgr: "echo cluster", want: PreemptedRequeued},
		"a QOS that nobody tells about":  {job: jobWithQOS, config: byQOS, sacctmgr: "exit 1", want: PreemptedRequeued},
		"a cluster with gang scheduling": {job: jobWithQOS, config: replace(byQOS, "= REQUEUE", "= GANG,REQUEUE"), sacctmgr: "exit 1", want: PreemptedRequeued},
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
				t.Errorf("%q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

func FuzzPreemption(f *testing.F) {
	f.Add("JobState=RUNNING Restarts=0 PreemptTime=2026-11-21T17:26:49", 0)
	f.Fuzz(func(t *testing.T, out string, restarts int) {
		if got := preemptionOf(parseFields(out), restarts); got == Preempted && !strings.Contains(out, "JobState=RUNNING") {
			t.Errorf("%q: %q", out, got)
		}
	})
}
