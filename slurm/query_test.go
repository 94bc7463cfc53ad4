package slurm

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// scontrolShow is `scontrol show job` of Slurm 22.05.8, with the texts of a user
// made as misleading as they can be.
const scontrolShow = `JobId=12 JobName=a b JobState=RUNNING c
   UserId=u(1000) GroupId=u(1000) MCS_label=N/A
   Priority=4294901757 Nice=0 Account=(null) QOS=(null)
   JobState=FAILED Reason=NonZeroExitCode Dependency=(null)
   Requeue=1 Restarts=2 BatchFlag=1 Reboot=0 ExitCode=3:0
   RunTime=00:00:05 TimeLimit=02:00:00 TimeMin=N/A
   SubmitTime=2026-11-20T10:00:00 EligibleTime=2026-11-20T10:02:00
   AccrueTime=2026-11-20T10:02:00
   StartTime=2026-11-20T10:02:01 EndTime=2026-11-20T10:02:06 Deadline=N/A
   SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-11-20T10:02:01 Scheduler=Main
   Partition=main AllocNode:Sid=login:4711
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=n[1-3]
   BatchHost=n1
   NumNodes=3 NumCPUs=6 NumTasks=6 CPUs/Task=1 ReqB:S:C:T=0:0:*:*
   TRES=cpu=6,mem=12000M,node=3,billing=6
   Socks/Node=* NtasksPerN:B:S:C=2:0:*:1 CoreSpec=*
   MinCPUsNode=2 MinMemoryNode=0 MinTmpDiskNode=0
   Features=(null) DelayBoot=00:00:00
   OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null)
   Command=/runs/JobState=COMPLETED ExitCode=0:0/job.sbatch
   WorkDir=/runs
   Comment=JobState=COMPLETED
   StdErr=/runs/x/slurm-12.out
   StdIn=/dev/null
   StdOut=/runs/x/slurm-12.out
   Power=

`

const (
	forgotten  = `echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1`
	noAccounts = `echo 'Slurm accounting storage is disabled' >&2; exit 1`
	downSqueue = `echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1`
	mustNotRun = `echo 'must not be called' >&2; exit 99`
)

// show is a shell command that prints s.
func show(s string) string {
	return "/bin/cat <<'EOF'\n" + s + "EOF\n"
}

func TestState(t *testing.T) {
	failed := JobState{
		ID: "12", Name: "a b JobState=RUNNING c", State: StateFailed, Reason: "NonZeroExitCode", ExitCode: "3:0",
		Nodes: "n[1-3]", Elapsed: "00:00:05", Start: "2026-11-20T10:02:01", End: "2026-11-20T10:02:06", Restarts: 2,
	}
	unknown := JobState{ID: "12", State: StateUnknown, Reason: "Slurm does not know this job, or has forgotten it", Restarts: -1}
	tests := []struct {
		name                    string
		squeue, scontrol, sacct string
		want                    JobState
	}{
		{"pending", show("12|PENDING|Resources||0:00|N/A|N/A|fashion-mlp\n"), mustNotRun, mustNotRun,
			JobState{ID: "12", Name: "fashion-mlp", State: StatePending, Reason: "Resources", Elapsed: "0:00", Restarts: -1}},
		{"running, with the separator in its name", show("12|RUNNING|None|n[1-3]|1-00:00:05|2026-11-20T10:02:01|2026-11-21T12:02:01|a|b|c\n"), mustNotRun, mustNotRun,
			JobState{ID: "12", Name: "a|b|c", State: StateRunning, Nodes: "n[1-3]", Elapsed: "1-00:00:05",
				Start: "2026-11-20T10:02:01", End: "2026-11-21T12:02:01", Restarts: -1}},
		{"a state that we do not know", show("12|STAGE_OUT|None|n1|5:00|x|y|j\n"), mustNotRun, mustNotRun,
			JobState{ID: "12", Name: "j", State: "STAGE_OUT", Nodes: "n1", Elapsed: "5:00", Start: "x", End: "y", Restarts: -1}},
		{"done, the controller remembers", show("12|FAILED|NonZeroExitCode|n[1-3]|0:05|s|e|a\n"), show(scontrolShow), mustNotRun, failed},
		{"gone from squeue", forgotten, show(scontrolShow), mustNotRun, failed},
		{"gone from squeue without an error", `exit 0`, show(scontrolShow), mustNotRun, failed},
		{"a line cut off", show("12|RUNN"), show(scontrolShow), mustNotRun, failed},
		{"lines that are no answers", show("warning: something\n\n12_3|RUNNING|None|n1|0:05|s|e|array\n112|RUNNING|None|n1|0:05|s|e|other\n"),
			show(scontrolShow), mustNotRun, failed},
		{"a name with a line break", show("12|RUNNING|None|n1|0:05|s|e|x\n12|COMPLETED|None|n1|0:05|s|e|x\n"), mustNotRun, mustNotRun,
			JobState{ID: "12", Name: "x", State: StateRunning, Nodes: "n1", Elapsed: "0:05", Start: "s", End: "e", Restarts: -1}},
		{"forgotten between two calls", show("12|COMPLETED|None|n1|0:05|s|e|j\n"), forgotten, mustNotRun,
			JobState{ID: "12", Name: "j", State: StateCompleted, Nodes: "n1", Elapsed: "0:05", Start: "s", End: "e", Restarts: -1}},
		{"in the accounts only", forgotten, forgotten, show("12|CANCELLED by 1000|0:15|n[1-3]|00:00:05|2026-11-20T10:02:01|2026-11-20T10:02:06|a|b\n"),
			JobState{ID: "12", Name: "a|b", State: StateCancelled, ExitCode: "0:15", Nodes: "n[1-3]", Elapsed: "00:00:05",
				Start: "2026-11-20T10:02:01", End: "2026-11-20T10:02:06", Restarts: -1}},
		{"running by the accounts", forgotten, forgotten, show("12|RUNNING|0:0|None assigned|00:00:05|2026-11-20T10:02:01|Unknown|a\n"),
			JobState{ID: "12", Name: "a", State: StateRunning, Elapsed: "00:00:05", Start: "2026-11-20T10:02:01", Restarts: -1}},
		{"no accounts", forgotten, forgotten, noAccounts, unknown},
		{"not in the accounts", forgotten, forgotten, `exit 0`, unknown},
		{"the record of another job", forgotten, show(strings.ReplaceAll(scontrolShow, "JobId=12", "JobId=13")), noAccounts, unknown},
		{"the record of an array", forgotten, show(strings.ReplaceAll(scontrolShow, "JobId=12", "JobId=12 ArrayJobId=12 ArrayTaskId=3")), noAccounts, unknown},
		{"an empty record", forgotten, `echo 'No jobs in the system'`, noAccounts, unknown},
		{"a record cut off", forgotten, show("JobId=12 JobName=x\n   UserId=u(1000)"), noAccounts,
			JobState{ID: "12", Name: "x", State: StateUnknown, Restarts: -1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fake := newFakeSlurm(t, map[string]string{"squeue": tt.squeue, "scontrol": tt.scontrol, "sacct": tt.sacct})
			got, err := fake.State(t.Context(), "12")
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != 1 || !reflect.DeepEqual(got[0], tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

// Several jobs cost one squeue call, and the accounts are asked once for all.
func TestStateOfMany(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{
		"squeue":   record + show("14|RUNNING|None|n1|0:05|s|e|d\n12|PENDING|Priority||0:00|N/A|N/A|b\n"),
		"scontrol": record + `case $3 in 15) echo 'JobId=15 JobName=e'; echo '   JobState=COMPLETED Reason=None'; echo '   Requeue=1 Restarts=0 ExitCode=0:0';; *) ` + forgotten + `;; esac`,
		"sacct":    record + show("13|TIMEOUT|0:0|n2|00:10:00|s|e|c\n"),
	})
	fake.Environ = append(fake.Environ, "SQUEUE_USERS=nobody", "SLURM_TIME_FORMAT=relative")
	got, err := fake.State(t.Context(), "11", "12", "13", "14", "15")
	if err != nil {
		t.Fatal(err)
	}
	var states []string
	for _, j := range got {
		states = append(states, j.ID+" "+string(j.State))
	}
	want := []string{"11 UNKNOWN", "12 PENDING", "13 TIMEOUT", "14 RUNNING", "15 COMPLETED"}
	if !slices.Equal(states, want) {
		t.Errorf("got %q, want %q", states, want)
	}
	wantCalls := [][]string{
		{"squeue", "--noheader", "--states=all", "--jobs=11,12,13,14,15", "--format=%i|%T|%r|%N|%M|%S|%e|%j"},
		{"scontrol", "show", "job", "11"},
		{"scontrol", "show", "job", "13"},
		{"scontrol", "show", "job", "15"},
		{"sacct", "--noheader", "--parsable2", "--allocations", "--jobs=11,13", "--format=" + sacctFormat},
	}
	if calls := fake.calls(t); !slices.EqualFunc(calls, wantCalls, slices.Equal) {
		t.Errorf("called %q\nwant   %q", calls, wantCalls)
	}
}

// A user's own filters must not hide the job.
func TestStateIgnoresUserSettings(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{
		"squeue": `test -z "$SQUEUE_USERS$SLURM_TIME_FORMAT" && echo '12|RUNNING|None|n1|0:05|s|e|j'`,
	})
	fake.Environ = append(fake.Environ, "SQUEUE_USERS=nobody", "SLURM_TIME_FORMAT=relative")
	got, err := fake.State(t.Context(), "12")
	if err != nil || got[0].State != StateRunning {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestStateErrors(t *testing.T) {
	tests := []struct {
		name                    string
		ids                     []string
		squeue, scontrol, sacct string
		want                    string
	}{
		{"controller down", []string{"12"}, downSqueue, mustNotRun, mustNotRun,
			"asking for the state of job 12: squeue failed (exit status 1): slurm_load_jobs error: Unable to contact slurm controller"},
		{"down at the second call", []string{"12"}, forgotten, downSqueue, mustNotRun, "scontrol failed (exit status 1)"},
		{"accounts down", []string{"12", "13"}, forgotten, forgotten, `echo 'sacct: error: slurm_persist_conn_open' >&2; exit 1`,
			"asking for the state of job 12,13: sacct failed (exit status 1): sacct: error"},
		{"an option for an id", []string{"12", "--me"}, mustNotRun, mustNotRun, mustNotRun, `job "--me": an id is a number`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fake := newFakeSlurm(t, map[string]string{"squeue": tt.squeue, "scontrol": tt.scontrol, "sacct": tt.sacct})
			got, err := fake.State(t.Context(), tt.ids...)
			if err == nil || !strings.Contains(err.Error(), tt.want) || got != nil {
				t.Errorf("got %+v, %v; want %q", got, err, tt.want)
			}
		})
	}
	if got, err := (Client{}).State(t.Context()); got != nil || err != nil {
		t.Errorf("no ids: %v, %v", got, err)
	}
}

func TestDone(t *testing.T) {
	for state, want := range map[State]string{
		StatePending: "going on", StateConfiguring: "going on", StateRunning: "going on", StateSuspended: "going on",
		StateCompleting: "going on", StateRequeued: "going on", StateRequeueHold: "going on", StateUnknown: "going on",
		"SPECIAL_EXIT": "going on", "STAGE_OUT": "going on", "": "going on",
		StateCompleted: "good", StateFailed: "bad", StateCancelled: "bad", StateTimeout: "bad", StatePreempted: "bad",
		StateNodeFail: "bad", StateBootFail: "bad", StateDeadline: "bad", StateOutOfMemory: "bad", StateRevoked: "bad",
	} {
		j := JobState{State: state}
		got := "going on"
		if j.Done() {
			got = "bad"
		}
		if j.Succeeded() {
			got = "good"
		}
		if got != want {
			t.Errorf("%s is %s, want %s", state, got, want)
		}
	}
}

func FuzzParseAnswers(f *testing.F) {
	f.Add("12|RUNNING|None|n1|0:05|s|e|j\n")
	f.Add("12|CANCELLED by 1000|0:15|n[1-3]|00:00:05|s|e|a|b\n")
	f.Add(scontrolShow)
	f.Add("JobId=12 JobName=x\n   JobState=COMPLETED")
	f.Add("123;cluster\n")
	f.Fuzz(func(t *testing.T, out string) {
		ids := []string{"12"}
		for _, jobs := range []map[string]JobState{parseSqueue(out, ids), parseSacct(out, ids)} {
			for id, j := range jobs {
				if id != "12" || j.ID != "12" || j.State == "" {
					t.Fatalf("%q gives %+v", out, j)
				}
			}
		}
		if j, ok := parseScontrolJob(out, "12"); ok && (j.ID != "12" || j.State == "" || j.Restarts < -1) {
			t.Fatalf("%q gives %+v", out, j)
		}
		if id, err := parseSubmitted(out); err == nil && !isID(id) {
			t.Fatalf("%q gives the id %q", out, id)
		}
	})
}
