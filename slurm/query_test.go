package slurm

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

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
		ID: "12", Name: "a b", State: StateFailed, Reason: "NonZeroExitCode", ExitCode: "3:0",
		Nodes: "n[1-3]", Elapsed: "0:05", Start: "2026-11-20T10:02:01", End: "2026-11-20T10:02:06", Restarts: 2,
	}
	unknown := JobState{ID: "12", State: StateUnknown, Reason: "Slurm does not know this job, or has forgotten it", Restarts: -1}
	tests := []struct {
		name          string
		squeue, sacct string
		want          JobState
	}{
		{"pending", show("12|12|N/A|PENDING||0:00|N/A|N/A|0|0|Resources|fashion-mlp\n"), mustNotRun,
			JobState{ID: "12", Name: "fashion-mlp", State: StatePending, Reason: "Resources", Elapsed: "0:00"}},
		{"padded columns", show("12  |12  |N/A |RUNNING |n1 |0:07 |N/A |N/A |0 |0 |None |fashion-mlp   \n"), mustNotRun,
			JobState{ID: "12", Name: "fashion-mlp", State: StateRunning, Nodes: "n1", Elapsed: "0:07"}},
		{"running, with the separator in its name", show("12|12|N/A|RUNNING|n[1-3]|1-00:00:05|2026-11-20T10:02:01|2026-11-21T12:02:01|1|0|None|a|b|c\n"), mustNotRun,
			JobState{ID: "12", Name: "a|b|c", State: StateRunning, Nodes: "n[1-3]", Elapsed: "1-00:00:05",
				Start: "2026-11-20T10:02:01", End: "2026-11-21T12:02:01", Restarts: 1}},
		{"a state that we do not know", show("12|12|N/A|STAGE_OUT|n1|5:00|x|y|0|0|None|j\n"), mustNotRun,
			JobState{ID: "12", Name: "j", State: "STAGE_OUT", Nodes: "n1", Elapsed: "5:00", Start: "x", End: "y"}},
		{"done", show("12|12|N/A|FAILED|n[1-3]|0:05|2026-11-20T10:02:01|2026-11-20T10:02:06|2|768|NonZeroExitCode|a b\n"), mustNotRun, failed},
		{"done, exit code as newer versions might print it", show("12|12|N/A|FAILED|n[1-3]|0:05|2026-11-20T10:02:01|2026-11-20T10:02:06|2|3:0|NonZeroExitCode|a b\n"), mustNotRun, failed},
		{"killed", show("12|12|N/A|CANCELLED||0:05|s|e|0|15|None|j\n"), mustNotRun,
			JobState{ID: "12", Name: "j", State: StateCancelled, ExitCode: "0:15", Elapsed: "0:05", Start: "s", End: "e"}},
		{"lines that are no answers", show("warning: something\n\n12|12|N/A|RUNN\n112|112|N/A|RUNNING|n1|0:05|s|e|0|0|None|other\n12|12|3|FAIL\n" +
			"12|12|N/A|FAILED|n[1-3]|0:05|2026-11-20T10:02:01|2026-11-20T10:02:06|2|768|NonZeroExitCode|a b\n"), mustNotRun, failed},
		{"a name with a line break", show("12|12|N/A|RUNNING|n1|0:05|s|e|0|0|None|x\n12|12|N/A|COMPLETED|n1|0:05|s|e|0|0|None|x\n"), mustNotRun,
			JobState{ID: "12", Name: "x", State: StateRunning, Nodes: "n1", Elapsed: "0:05", Start: "s", End: "e"}},
		{"leader of a heterogeneous job", show("13|N/A|N/A|FAILED|n2|0:05|s|e|0|1|None|j\n12|N/A|N/A|RUNNING|n1|0:05|s|e|0|0|None|j\n"), mustNotRun,
			JobState{ID: "12", Name: "j", State: StateRunning, Nodes: "n1", Elapsed: "0:05", Start: "s", End: "e"}},
		{"in the accounts only", forgotten, show("12|12|CANCELLED by 1000|0:15|n[1-3]|00:00:05|2026-11-20T10:02:01|2026-11-20T10:02:06|a|b\n"),
			JobState{ID: "12", Name: "a|b", State: StateCancelled, ExitCode: "0:15", Nodes: "n[1-3]", Elapsed: "00:00:05",
				Start: "2026-11-20T10:02:01", End: "2026-11-20T10:02:06", Restarts: -1}},
		{"gone without an error", `exit 0`, show("12+0|12|RUNNING|0:0|None assigned|00:00:05|2026-11-20T10:02:01|Unknown|a\n"),
			JobState{ID: "12", Name: "a", State: StateRunning, Elapsed: "00:00:05", Start: "2026-11-20T10:02:01", Restarts: -1}},
		{"no accounts", forgotten, noAccounts, unknown},
		{"not in the accounts", forgotten, `exit 0`, unknown},
		{"the accounts of another job", forgotten, show("13|13|FAILED|0:15|n1|1|s|e|a\n12|12|FAIL\n"), unknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fake := newFakeSlurm(t, map[string]string{"squeue": tt.squeue, "sacct": tt.sacct})
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

// Any number of jobs costs one squeue call and, if some are gone, one of sacct.
// The jobs here: 11 is unknown to all, 12 pending, 13 in the accounts, 14
// running, 18 an array with a running, two pending and a forgotten element, which has the
// number 19 of its own.
var manyJobs = map[string]string{
	"squeue": record + show("14|14|N/A|RUNNING|n1|0:05|s|e|0|0|None|d\n12|12|N/A|PENDING||0:00|N/A|N/A|0|0|Priority|b\n"+
		"20|18|2|RUNNING|n2|0:05|s|e|1|0|None|sweep\n18|18|3|PENDING||0:00|N/A|N/A|0|0|JobArrayTaskLimit|sweep\n18|18|10|PENDING||0:00|N/A|N/A|0|0|JobArrayTaskLimit|sweep\n"),
	"sacct": record + show("13|13|TIMEOUT|0:0|n2|00:10:00|s|e|c\n18_0|19|FAILED|7:0|n1|00:00:03|s|e|sweep\n"+
		"18_2|20|PREEMPTED|0:0|n1|00:00:03|s|e|sweep\n18_[3,10%2]|18|PENDING|0:0|None assigned|00:00:00|Unknown|Unknown|sweep\n"),
}

func TestStateOfMany(t *testing.T) {
	fake := newFakeSlurm(t, manyJobs)
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
		t.Errorf("the array's reason is %q", reason)
	}
	wantCalls := [][]string{
		{"squeue", "--noheader", "--states=all", "--array", "--jobs=11,12,13,14,18,19,20", "--Format=" + squeueFormat},
		{"sacct", "--noheader", "--parsable2", "--allocations", "--jobs=11,13,18,19", "--format=" + sacctFormat},
	}
	if calls := fake.calls(t); !slices.EqualFunc(calls, wantCalls, slices.Equal) {
		t.Errorf("called %q\nwant   %q", calls, wantCalls)
	}
}

func TestElements(t *testing.T) {
	fake := newFakeSlurm(t, manyJobs)
	for id, want := range map[string]string{
		"18": "18_0 FAILED 7:0 -1, 18_2 RUNNING  1, 18_3 PENDING  0, 18_10 PENDING  0",
		"14": "", "99": "",
	} {
		got, err := fake.Elements(t.Context(), id)
		var states []string
		for _, j := range got {
			states = append(states, fmt.Sprintf("%s %s %s %d", j.ID, j.State, j.ExitCode, j.Restarts))
		}
		if s := strings.Join(states, ", "); err != nil || s != want {
			t.Errorf("the elements of %s: %s, %v; want %s", id, s, err, want)
		}
	}
	if got, err := fake.Elements(t.Context(), "18_3"); err == nil {
		t.Errorf("an element has elements: %v", got)
	}
}

func TestSumUp(t *testing.T) {
	tests := []struct {
		states []State
		want   State
		reason string
	}{
		{[]State{StateCompleted, StateCompleted}, StateCompleted, "2 COMPLETED"},
		{[]State{StateCompleted, StateFailed, StateTimeout}, StateFailed, "1 COMPLETED, 1 FAILED, 1 TIMEOUT"},
		{[]State{StateFailed, StatePending}, StatePending, "1 FAILED, 1 PENDING"},
		{[]State{StatePending, StateRunning, StateFailed}, StateRunning, "1 PENDING, 1 RUNNING, 1 FAILED"},
		{[]State{StateCompleted, StateUnknown}, StateUnknown, "1 COMPLETED, 1 UNKNOWN"},
	}
	for _, tt := range tests {
		var elements []JobState
		for _, s := range tt.states {
			elements = append(elements, JobState{State: s, Restarts: -1})
		}
		if got := sumUp("18", elements); got.State != tt.want || got.Reason != tt.reason || got.ID != "18" {
			t.Errorf("%v: %+v", tt.states, got)
		}
	}
}

// Accounts that do not answer hide only what nobody else knows.
func TestStateWithoutAccounts(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{
		"squeue": show("12|12|N/A|RUNNING|n1|0:05|s|e|0|0|None|j\n18|18|1|COMPLETED|n1|0:05|s|e|0|0|None|j\n"),
		"sacct":  `echo 'sacct: error: slurm_persist_conn_open' >&2; exit 1`,
	})
	got, err := fake.State(t.Context(), "12", "13", "18", "18_1")
	if err == nil && (got[2].State != StateUnknown || got[3].State != StateCompleted) {
		t.Errorf("the ended elements speak for the whole array: %+v", got[2:])
	}
	if err != nil || got[0].State != StateRunning || got[1].State != StateUnknown || !strings.Contains(got[1].Reason, "sacct failed") {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := fake.Elements(t.Context(), "13"); err == nil {
		t.Errorf("elements: %+v", got)
	}
	fake = newFakeSlurm(t, map[string]string{"squeue": forgotten})
	if got, err := fake.State(t.Context(), "12"); err != nil || got[0].State != StateUnknown {
		t.Errorf("without sacct: %+v, %v", got, err)
	}
}

// An array of which the controller knows only ended elements may have had more.
func TestStateOfEndedArray(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{
		"squeue": show("18|18|1|COMPLETED|n1|0:05|s|e|0|0|None|j\n"),
		"sacct":  show("18_0|19|FAILED|7:0|n1|00:00:03|s|e|j\n18_1|18|COMPLETED|0:0|n1|00:00:03|s|e|j\n"),
	})
	got, err := fake.State(t.Context(), "18")
	if err != nil || got[0].State != StateFailed || got[0].ExitCode != "7:0" {
		t.Errorf("%+v, %v", got, err)
	}
}

// Thousands of ids are one call; more would not fit an argument.
func TestStateInChunks(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{"squeue": `echo x >>"$FAKE/calls"`, "sacct": `echo x >>"$FAKE/calls"; ` + noAccounts})
	var ids []string
	for i := range maxIDsPerCall + 1 {
		ids = append(ids, fmt.Sprint(4_000_000_000+i))
	}
	got, err := fake.State(t.Context(), ids...)
	if err != nil || len(got) != len(ids) || got[5].ID != ids[5] {
		t.Fatalf("%d states, %v", len(got), err)
	}
	if calls := fake.lines(t, "calls"); len(calls) != 4 {
		t.Errorf("%d calls", len(calls))
	}
}

// A user's own filters must not hide the job, and long arrays are not cut off.
func TestStateIgnoresUserSettings(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{
		"squeue": `test -z "$SQUEUE_USERS$SLURM_TIME_FORMAT" && test "$SLURM_BITSTR_LEN" = 0 && echo '12|12|N/A|RUNNING|n1|0:05|s|e|0|0|None|j'`,
	})
	fake.Environ = append(fake.Environ, "SQUEUE_USERS=nobody", "SLURM_TIME_FORMAT=relative", "SLURM_BITSTR_LEN=10")
	got, err := fake.State(t.Context(), "12")
	if err != nil || got[0].State != StateRunning {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestStateErrors(t *testing.T) {
	tests := []struct {
		name          string
		ids           []string
		squeue, sacct string
		want          string
	}{
		{"controller down", []string{"12"}, downSqueue, mustNotRun,
			"asking for the state of job 12: squeue failed (exit status 1): slurm_load_jobs error: Unable to contact slurm controller"},
		{"accounts down", []string{"12", "13"}, forgotten, `echo 'sacct: error: slurm_persist_conn_open' >&2; exit 1`,
			"asking for the state of job 12,13: sacct failed (exit status 1): sacct: error"},
		{"many", []string{"1", "2", "3", "4", "5", "6", "7"}, downSqueue, mustNotRun, "the state of job 1,2,3,4,5 and 2 more: squeue"},
		{"an option for an id", []string{"12", "--me"}, mustNotRun, mustNotRun, `job "--me": an id is a number`},
		{"a range for an element", []string{"12_[1-2]"}, mustNotRun, mustNotRun, `job "12_[1-2]": an id is a number`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fake := newFakeSlurm(t, map[string]string{"squeue": tt.squeue, "sacct": tt.sacct})
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

func TestAppendElements(t *testing.T) {
	tests := []struct{ in, want string }{
		{"3", "[3]"}, {"2-5,9", "[2 3 4 5 9]"}, {"[2-5%4]", "[2 3 4 5]"}, {"0-20:10", "[0 10 20]"}, {"1-4:2,7", "[1 3 7]"},
		{"", "a number is missing"}, {"1,3,...", `"..." is not a number`}, {"5-2", "no element"}, {"1-5:0", "no element"},
		{"0-99999999", "more than 4194304 elements"}, {"0-4000000,0-4000000", "more than"}, {"-1", "a number is missing"}, {"1-", "missing"},
	}
	for _, tt := range tests {
		got, err := appendElements(nil, tt.in)
		s := fmt.Sprint(got)
		if err != nil {
			s = err.Error()
		}
		if !strings.Contains(s, tt.want) {
			t.Errorf("%q: %s, want %s", tt.in, s, tt.want)
		}
	}
}

func FuzzAppendElements(f *testing.F) {
	for _, s := range []string{"3", "[2-5%4]", "0-20:4,7", "1,3,...", "0-4294967294"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := appendElements(nil, s)
		if (err == nil) == (len(got) == 0) || len(got) > maxArrayElements {
			t.Fatalf("%q: %d elements, %v", s, len(got), err)
		}
	})
}

func FuzzParseAnswers(f *testing.F) {
	f.Add("12|12|N/A|RUNNING|n1|0:05|s|e|0|0|None|j\n")
	f.Add("20|12|2-5%4|PENDING||0:00|N/A|N/A|0|0|Priority|a|b\n")
	f.Add("12|12|CANCELLED by 1000|0:15|n[1-3]|00:00:05|s|e|a|b\n12_[1-3]|12|PENDING|0:0||||x|y\n")
	f.Add("12|N/A|N/A|0|ddpbatch 1\n")
	f.Add("123;cluster\n")
	f.Fuzz(func(t *testing.T, out string) {
		wanted := map[string]bool{"12": true}
		for _, records := range [][]jobRecord{parseSqueue(out), parseSacct(out)} {
			known := newAnswers()
			for _, r := range records {
				known.add(r, wanted)
			}
			for id, j := range known.byID {
				if id != j.ID || j.State == "" || j.Restarts < -1 || !isID(strings.ReplaceAll(id, "_", "")[:1]) {
					t.Fatalf("%q gives %+v", out, j)
				}
			}
			if j, ok := known.get("12"); ok && (j.ID != "12" || j.State == "") {
				t.Fatalf("%q gives %+v", out, j)
			}
		}
		for _, id := range parseComments(out, "ddpbatch 1") {
			if !isID(id) {
				t.Fatalf("%q gives the id %q", out, id)
			}
		}
		if id, err := parseSubmitted(out); err == nil && !isID(id) {
			t.Fatalf("%q gives the id %q", out, id)
		}
	})
}
