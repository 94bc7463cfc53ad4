package slurm

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestState checks the state of a job in the output of squeue and, if the job has left the queue,
// of sacct.
func TestState(t *testing.T) {
	failed := JobState{
		ID: "12", State: StateFailed, Reason: "NonZeroExitCode", ExitCode: "3:0",
		Nodes: "n[1-3]", Elapsed: "0:05", Start: "2026-11-20T10:02:01", End: "2026-11-20T10:02:06", Restarts: 2,
	}
	const failedLine = "12|12|N/A|FAILED|n[1-3]|0:05|2026-11-20T10:02:01|2026-11-20T10:02:06|2|768|NonZeroExitCode\n"
	unknown := JobState{ID: "12", State: StateUnknown, Reason: "Slurm has no record of this job", Restarts: -1}
	for _, tt := range []struct {
		name          string
		squeue, sacct string
		want          JobState
	}{
		{name: "pending", squeue: show("12|12|N/A|PENDING||0:00|N/A|N/A|0|0|Resources\n"), sacct: mustNotRun,
			want: JobState{ID: "12", State: StatePending, Reason: "Resources", Elapsed: "0:00"}},
		{name: "padded columns", squeue: show("12  |12  |N/A |RUNNING |n1 |0:07 |N/A |N/A |0 |0 |None   \n"), sacct: mustNotRun,
			want: JobState{ID: "12", State: StateRunning, Nodes: "n1", Elapsed: "0:07"}},
		{name: "running", squeue: show("12|12|N/A|RUNNING|n[1-3]|1-00:00:05|2026-11-20T10:02:01|2026-11-21T12:02:01|1|0|None\n"), sacct: mustNotRun,
			want: JobState{ID: "12", State: StateRunning, Nodes: "n[1-3]", Elapsed: "1-00:00:05", Start: "2026-11-20T10:02:01", End: "2026-11-21T12:02:01", Restarts: 1}},
		{name: "separator in the reason", squeue: show("12|12|N/A|PENDING||0:00|N/A|N/A|0|0|held by a|b\n"), sacct: mustNotRun,
			want: JobState{ID: "12", State: StatePending, Reason: "held by a|b", Elapsed: "0:00"}},
		{name: "unknown state", squeue: show("12|12|N/A|STAGE_OUT|n1|5:00|x|y|0|0|None\n"), sacct: mustNotRun,
			want: JobState{ID: "12", State: "STAGE_OUT", Nodes: "n1", Elapsed: "5:00", Start: "x", End: "y"}},
		{name: "failed", squeue: show(failedLine), sacct: mustNotRun, want: failed},
		{name: "exit code with signal", squeue: show(strings.Replace(failedLine, "|768|", "|3:0|", 1)), sacct: mustNotRun, want: failed},
		{name: "killed", squeue: show("12|12|N/A|CANCELLED||0:05|s|e|0|15|None\n"), sacct: mustNotRun,
			want: JobState{ID: "12", State: StateCancelled, ExitCode: "0:15", Elapsed: "0:05", Start: "s", End: "e"}},
		{name: "invalid lines", squeue: show("warning: something\n\n12|12|N/A|RUNN\n112|112|N/A|RUNNING|n1|0:05|s|e|0|0|None\n12|12|3|FAIL\n12|x|3|RUNNING|n1|0:05|s|e|0|0|None\n" + failedLine),
			sacct: mustNotRun, want: failed},
		{name: "two lines", squeue: show("12|12|N/A|RUNNING|n1|0:05|s|e|x|0|None\n" + failedLine), sacct: mustNotRun,
			want: JobState{ID: "12", State: StateRunning, Nodes: "n1", Elapsed: "0:05", Start: "s", End: "e", Restarts: -1}},
		{name: "heterogeneous job", squeue: show("13|N/A|N/A|FAILED|n2|0:05|s|e|0|1|None\n12|N/A|N/A|RUNNING|n1|0:05|s|e|0|0|None\n"), sacct: mustNotRun,
			want: JobState{ID: "12", State: StateRunning, Nodes: "n1", Elapsed: "0:05", Start: "s", End: "e"}},
		{name: "accounting", squeue: unknownID, sacct: show("12|12|CANCELLED by 1000|0:15|n[1-3]|00:00:05|2026-11-20T10:02:01|2026-11-20T10:02:06\n"),
			want: JobState{ID: "12", State: StateCancelled, ExitCode: "0:15", Nodes: "n[1-3]", Elapsed: "00:00:05", Start: "2026-11-20T10:02:01", End: "2026-11-20T10:02:06", Restarts: -1}},
		{name: "accounting, no error from squeue", squeue: `exit 0`, sacct: show("12+0|12|RUNNING|0:0|None assigned|00:00:05|2026-11-20T10:02:01|Unknown\n"),
			want: JobState{ID: "12", State: StateRunning, Elapsed: "00:00:05", Start: "2026-11-20T10:02:01", Restarts: -1}},
		{name: "no accounting", squeue: unknownID, sacct: noAccounting, want: unknown},
		{name: "not in accounting", squeue: unknownID, sacct: `exit 0`, want: unknown},
		{name: "other jobs in accounting", squeue: unknownID, sacct: show("13|13|FAILED|0:15|n1|1|s|e\n12|12|FAIL\n12|12|FAILED|0:15|n1|1|s|e|more\n"), want: unknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fake := newFakeSlurm(t, map[string]string{"squeue": tt.squeue, "sacct": tt.sacct})
			got, err := fake.State(t.Context(), "12")
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != 1 || got[0] != tt.want {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

// TestStateOfMany checks that the states of any number of jobs take one call of squeue and, if
// some are forgotten, one of sacct.
func TestStateOfMany(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{
		"squeue": record + show("14|14|N/A|RUNNING|n1|0:05|s|e|0|0|None\n12|12|N/A|PENDING||0:00|N/A|N/A|0|0|Priority\n"+
			"20|18|2|RUNNING|n2|0:05|s|e|1|0|None\n18|18|3|PENDING||0:00|N/A|N/A|0|0|JobArrayTaskLimit\n18|18|10|PENDING||0:00|N/A|N/A|0|0|JobArrayTaskLimit\n"),
		"sacct": record + show("13|13|TIMEOUT|0:0|n2|00:10:00|s|e\n18_0|19|FAILED|7:0|n1|00:00:03|s|e\n"+
			"18_2|20|PREEMPTED|0:0|n1|00:00:03|s|e\n18_[3,10%2]|18|PENDING|0:0|None assigned|00:00:00|Unknown|Unknown\n"),
	})
	got, err := fake.State(t.Context(), "11", "12", "13", "14", "18_0", "18_3", "20", "18", "19", "18_7", "12")
	if err != nil {
		t.Fatal(err)
	}
	var states []string
	for _, j := range got {
		states = append(states, fmt.Sprintf("%s %s (%s_%s)", j.ID, j.State, j.ArrayJobID, j.ArrayTask))
	}
	want := []string{"11 UNKNOWN (_)", "12 PENDING (_)", "13 TIMEOUT (_)", "14 RUNNING (_)", "18_0 FAILED (18_0)", "18_3 PENDING (18_3)",
		"20 RUNNING (18_2)", "18 RUNNING (18_)", "19 FAILED (18_0)", "18_7 UNKNOWN (18_7)", "12 PENDING (_)"}
	if !slices.Equal(states, want) {
		t.Errorf("got  %q\nwant %q", states, want)
	}
	if reason := got[7].Reason; reason != "1 FAILED, 1 RUNNING, 2 PENDING" {
		t.Errorf("got reason %q for the job array", reason)
	}
	wantCalls := [][]string{
		{"squeue", "--noheader", "--states=all", "--array", "--jobs=11,12,13,14,18,19,20", "--Format=" + squeueFormat},
		{"sacct", "--noheader", "--parsable2", "--allocations", "--jobs=11,13,18,19", "--format=" + sacctFormat},
	}
	if calls := fake.calls(t); !slices.EqualFunc(calls, wantCalls, slices.Equal) {
		t.Errorf("got calls  %q\nwant calls %q", calls, wantCalls)
	}
}

// TestStateOfRepeatedArray checks that the time does not grow with the number of tasks times the number
// of repetitions of an ID. The runs of another user can name one job array thousands of times.
func TestStateOfRepeatedArray(t *testing.T) {
	const tasks, repetitions = 10_000, 2000
	var lines strings.Builder
	for i := range tasks {
		fmt.Fprintf(&lines, "18|18|%d|PENDING||0:00|N/A|N/A|0|0|Priority\n", i)
	}
	fake := newFakeSlurm(t, map[string]string{"squeue": show(lines.String()), "sacct": mustNotRun})
	measure := func(n int) time.Duration {
		t.Helper()
		began := time.Now()
		got, err := fake.State(t.Context(), slices.Repeat([]string{"18"}, n)...)
		if err != nil || len(got) != n || got[0] != got[n-1] || got[0].Reason != fmt.Sprintf("%d PENDING", tasks) {
			t.Fatalf("%d repetitions: got %d states, %v", n, len(got), err)
		}
		return time.Since(began)
	}
	if once, often := measure(1), measure(repetitions); often > 20*once+2*time.Second {
		t.Errorf("%d repetitions took %s, one took %s", repetitions, often, once)
	}
}

// TestStateOfCanceledArrays checks job arrays that were canceled before their start. Accounting has one
// line for all their tasks, so that the memory does not grow with the number of tasks: the runs of another
// user can name thousands of such job arrays.
func TestStateOfCanceledArrays(t *testing.T) {
	const arrays = 50
	var lines strings.Builder
	var ids []string
	for i := range arrays {
		fmt.Fprintf(&lines, "%d_[0-20000:2%%4]|%d|CANCELLED by 61001|0:0|None assigned|00:00:00|Unknown|e\n", 1000+i, 1000+i)
		ids = append(ids, fmt.Sprint(1000+i))
	}
	lines.WriteString("1000_4|2000|FAILED|7:0|n1|00:00:03|s|e\n")
	fake := newFakeSlurm(t, map[string]string{"squeue": `exit 0`, "sacct": show(lines.String())})
	ids = append(ids, "1000_4", "1000_6", "1000_7", "1000_06", "1000_20002")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, err := fake.State(t.Context(), ids...)
	runtime.ReadMemStats(&after)
	if err != nil || len(got) != len(ids) {
		t.Fatalf("got %d states, %v", len(got), err)
	}
	if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; mib > 64 {
		t.Errorf("got %d MiB of memory", mib)
	}
	for i, want := range []string{"1000 CANCELLED, 10000 CANCELLED, 1 FAILED", "1001 CANCELLED, 10001 CANCELLED"} {
		if j := got[i]; fmt.Sprintf("%s %s, %s", j.ID, j.State, j.Reason) != want {
			t.Errorf("got %+v, want %s", j, want)
		}
	}
	for i, want := range []State{StateFailed, StateCancelled, StateUnknown, StateUnknown, StateUnknown} {
		if j := got[arrays+i]; j.State != want || j.ID != ids[arrays+i] || j.ArrayJobID != "1000" || "1000_"+j.ArrayTask != j.ID {
			t.Errorf("got %+v, want %s", j, want)
		}
	}
}

// TestStateWithoutAccounting checks that the states that squeue provides are valid if accounting
// does not reply.
func TestStateWithoutAccounting(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{
		"squeue": show("12|12|N/A|RUNNING|n1|0:05|s|e|0|0|None\n18|18|1|COMPLETED|n1|0:05|s|e|0|0|None\n"),
		"sacct":  `echo 'sacct: error: slurm_persist_conn_open' >&2; exit 1`,
	})
	got, err := fake.State(t.Context(), "12", "13", "18", "18_1")
	if err != nil {
		t.Fatal(err)
	}
	// Of job array 18, squeue lists only a task that has ended. Others may be missing.
	for i, want := range []State{StateRunning, StateUnknown, StateUnknown, StateCompleted} {
		if got[i].State != want {
			t.Errorf("job %s: got %s, want %s", got[i].ID, got[i].State, want)
		}
	}
	if !strings.Contains(got[1].Reason, "slurm_persist_conn_open") {
		t.Errorf("got reason %q, want the error of sacct", got[1].Reason)
	}
	fake = newFakeSlurm(t, map[string]string{"squeue": unknownID})
	if got, err := fake.State(t.Context(), "12"); err != nil || got[0].State != StateUnknown {
		t.Errorf("no sacct: got %+v, %v", got, err)
	}
}

// TestStateOfEndedArray checks a job array of which squeue lists only ended tasks. Accounting may
// have more.
func TestStateOfEndedArray(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{
		"squeue": show("18|18|1|COMPLETED|n1|0:05|s|e|0|0|None\n"),
		"sacct":  show("18_0|19|FAILED|7:0|n1|00:00:03|s|e\n18_1|18|COMPLETED|0:0|n1|00:00:03|s|e\n"),
	})
	got, err := fake.State(t.Context(), "18")
	if err != nil || got[0].State != StateFailed || got[0].ExitCode != "7:0" || got[0].Reason != "1 FAILED, 1 COMPLETED" {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestStateInChunks checks that many IDs are divided among several calls.
func TestStateInChunks(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{"squeue": `echo x >>"$FAKE/calls"`, "sacct": `echo x >>"$FAKE/calls"; ` + noAccounting})
	var ids []string
	for i := range maxIDsPerCall + 1 {
		ids = append(ids, fmt.Sprint(4_000_000_000+i))
	}
	got, err := fake.State(t.Context(), ids...)
	if err != nil || len(got) != len(ids) || got[5].ID != ids[5] {
		t.Fatalf("got %d states, %v", len(got), err)
	}
	if calls, err := os.ReadFile(filepath.Join(fake.dir, "calls")); err != nil || string(calls) != strings.Repeat("x\n", 4) {
		t.Errorf("got calls %q, %v, want 4", calls, err)
	}
}

// TestStateIgnoresUserSettings checks that the user's filters do not hide jobs, and that long
// lists of array tasks are not cut.
func TestStateIgnoresUserSettings(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{
		"squeue": `test -z "$SQUEUE_USERS$SLURM_TIME_FORMAT" && test "$SLURM_BITSTR_LEN" = 0 && echo '12|12|N/A|RUNNING|n1|0:05|s|e|0|0|None'`,
		"sacct":  `test -z "$SACCT_FORMAT" && test "$SLURM_BITSTR_LEN" = 0 && echo '13|13|TIMEOUT|0:0|n2|00:10:00|s|e'`,
	})
	fake.Environ = append(fake.Environ, "SQUEUE_USERS=nobody", "SACCT_FORMAT=x", "SLURM_TIME_FORMAT=relative", "SLURM_BITSTR_LEN=10")
	got, err := fake.State(t.Context(), "12", "13")
	if err != nil || got[0].State != StateRunning || got[1].State != StateTimeout {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestStateUsesLastKnown checks that LastKnown is used only for jobs that Slurm does not list.
func TestStateUsesLastKnown(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{"squeue": `echo '7|7|N/A|RUNNING|n1|0:10|N/A|N/A|0|0|None'`, "sacct": noAccounting})
	fake.LastKnown = func(id string) (JobState, bool) {
		return JobState{ID: id, State: StateCancelled, Restarts: -1}, id != "9"
	}
	states, err := fake.State(t.Context(), "7", "8_2", "9")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []State{StateRunning, StateCancelled, StateUnknown} {
		if states[i].State != want {
			t.Errorf("job %s: got %s, want %s", states[i].ID, states[i].State, want)
		}
	}
}

// TestStateErrors checks that errors name the jobs and the program.
func TestStateErrors(t *testing.T) {
	for _, tt := range []struct {
		name          string
		ids           []string
		squeue, sacct string
		want          []string // parts of the error
	}{
		{name: "controller down", ids: []string{"12"}, squeue: controllerDown, sacct: mustNotRun, want: []string{"job 12:", "squeue", "Unable to contact slurm controller"}},
		{name: "accounting down", ids: []string{"12", "13"}, squeue: unknownID, sacct: `echo 'sacct: error: slurm_persist_conn_open' >&2; exit 1`,
			want: []string{"job 12 and 13:", "sacct", "slurm_persist_conn_open"}},
		{name: "many jobs", ids: []string{"1", "2", "3", "4", "5", "6", "7"}, squeue: controllerDown, sacct: mustNotRun, want: []string{"job 1, 2, 3, 4, 5, and 2 more:"}},
		{name: "option as ID", ids: []string{"12", "--me"}, squeue: mustNotRun, sacct: mustNotRun, want: []string{`job "--me"`}},
		{name: "range of array tasks", ids: []string{"12_[1-2]"}, squeue: mustNotRun, sacct: mustNotRun, want: []string{`job "12_[1-2]"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fake := newFakeSlurm(t, map[string]string{"squeue": tt.squeue, "sacct": tt.sacct})
			got, err := fake.State(t.Context(), tt.ids...)
			if err == nil || got != nil {
				t.Fatalf("got %+v, %v, want an error", got, err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got error %q, want %q in it", err, want)
				}
			}
		})
	}
	if got, err := (Client{}).State(t.Context()); got != nil || err != nil {
		t.Errorf("no IDs: got %v, %v", got, err)
	}
}

// TestEndTime checks the end of a job's time limit, and jobs without a limit.
func TestEndTime(t *testing.T) {
	for _, tt := range []struct {
		name, end string
		want      time.Time
		err       bool
	}{
		{name: "limit", end: "2026-11-21T12:02:01", want: time.Date(2026, 11, 21, 12, 2, 1, 0, time.Local)},
		{name: "no limit", end: "N/A"},
		{name: "invalid time", end: "soon", err: true},
	} {
		fake := newFakeSlurm(t, map[string]string{"squeue": show("12|12|N/A|RUNNING|n1|1:05|2026-11-20T10:02:01|" + tt.end + "|0|0|None\n")})
		end, err := fake.EndTime(t.Context(), "12")
		if !end.Equal(tt.want) || (err != nil) != tt.err || err != nil && !strings.Contains(err.Error(), "job 12:") {
			t.Errorf("%s: got %v, %v, want %v", tt.name, end, err, tt.want)
		}
	}
	fake := newFakeSlurm(t, map[string]string{"squeue": controllerDown})
	if end, err := fake.EndTime(t.Context(), "12"); err == nil {
		t.Errorf("controller down: got %v, want an error", end)
	}
}

// TestSteps checks that the steps of the batch script, and lines of other jobs' forms, are omitted.
func TestSteps(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{"squeue": show("12.0\n12.batch\n12.extern\n12_3.17\n12.interactive\n\n")})
	steps, err := fake.Steps(t.Context(), "12")
	if want := []string{"0", "17"}; err != nil || !slices.Equal(steps, want) {
		t.Errorf("got %q, %v, want %q", steps, err, want)
	}
	fake = newFakeSlurm(t, map[string]string{"squeue": controllerDown})
	if steps, err := fake.Steps(t.Context(), "12"); err == nil {
		t.Errorf("controller down: got %q, want an error", steps)
	}
}

// FuzzParseAnswers checks that any output of Slurm's programs has valid records only.
func FuzzParseAnswers(f *testing.F) {
	f.Add("12|12|N/A|RUNNING|n1|0:05|s|e|0|0|None\n")
	f.Add("20|12|2-5%4|PENDING||0:00|N/A|N/A|0|0|Priority|a|b\n")
	f.Add("12|12|CANCELLED by 1000|0:15|n[1-3]|00:00:05|s|e\n12_[1-3]|12|PENDING|0:0||||\n")
	f.Add("12|N/A|N/A|0|ddpbatch 1\n")
	f.Add("123;cluster\n")
	f.Fuzz(func(t *testing.T, out string) {
		for _, records := range [][]jobRecord{parseSqueue(out), parseSacct(out)} {
			known := newJobTable()
			known.add(records, []string{"12"})
			for id, j := range known.byID {
				if id != j.ID || j.State == "" || j.Restarts < -1 || checkIDs([]string{id}) != nil {
					t.Fatalf("%q: got %+v", out, j)
				}
			}
			for _, id := range []string{"12", "12_2"} {
				if j, ok := known.get(id); ok && (j.ID != id || j.State == "") {
					t.Fatalf("%q: got %+v", out, j)
				}
			}
		}
		for _, job := range parseSubmittedJobs(out, 5, func(f []string) bool { return f[4] == "ddpbatch 1" }) {
			if !isID(job.ID) {
				t.Fatalf("%q: got ID %q", out, job.ID)
			}
		}
		if id, err := parseSubmitted(out); err == nil && !isID(id) {
			t.Fatalf("%q: got ID %q", out, id)
		}
	})
}

// TestOwner checks that the owner of a job is the number that squeue prints.
func TestOwner(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{"squeue": `case "$*" in *--jobs=7*) echo " 61001"; echo " 61001";; *) echo "slurm_load_jobs error" >&2; exit 1;; esac`})
	if got, err := fake.Owner(t.Context(), "7"); err != nil || got != 61001 {
		t.Errorf("got %d, %v", got, err)
	}
	for _, id := range []string{"8", "", "7 --me", "-7"} {
		if got, err := fake.Owner(t.Context(), id); err == nil {
			t.Errorf("job %q: got %d", id, got)
		}
	}
}
