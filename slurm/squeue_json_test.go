package slurm

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// Each file has the same jobs, written in the shapes of one version: states as a
// string or a list, numbers plain or with "set", an exit code as either or as an
// object, and what is absent as 0, {}, null or "".
func TestParseSqueueJSON(t *testing.T) {
	at := func(s int64) string { return time.Unix(s, 0).Format("2006-01-02T15:04:05") }
	start, end, later := at(1795255321), at(1795255326), at(1795341721)
	want := map[string]JobState{
		"12":    {ID: "12", Name: "a|b", State: StateFailed, Reason: "NonZeroExitCode", ExitCode: "3:0", Nodes: "n[1-3]", Elapsed: "0:05", Start: start, End: end, Restarts: 2},
		"14":    {ID: "14", Name: "running", State: StateRunning, Nodes: "n1", Elapsed: "1:01:01", Start: start, End: later},
		"20":    {ID: "20", ArrayJobID: "18", ArrayTask: "2", Name: "sweep", State: StateRunning, Nodes: "n2", Elapsed: "1:01:01", Start: start, End: later, Restarts: 1},
		"18_2":  {ID: "18_2", ArrayJobID: "18", ArrayTask: "2", Name: "sweep", State: StateRunning, Nodes: "n2", Elapsed: "1:01:01", Start: start, End: later, Restarts: 1},
		"18_3":  {ID: "18_3", ArrayJobID: "18", ArrayTask: "3", Name: "sweep", State: StatePending, Reason: "JobArrayTaskLimit", Elapsed: "0:00"},
		"18_10": {ID: "18_10", ArrayJobID: "18", ArrayTask: "10", Name: "sweep", State: StatePending, Reason: "JobArrayTaskLimit", Elapsed: "0:00"},
		"30":    {ID: "30", Name: "killed", State: StateCancelled, ExitCode: "0:15", Nodes: "n1", Elapsed: "0:05", Start: start, End: end},
	}
	files, err := filepath.Glob("testdata/squeue/*.json")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		records, err := parseSqueueJSON(data, time.Unix(1795255321+3661, 0))
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		known := newAnswers()
		for _, r := range records {
			known.add(r, map[string]bool{"12": true, "14": true, "18": true, "30": true})
		}
		for id, j := range want {
			if !reflect.DeepEqual(known.byID[id], j) {
				t.Errorf("%s:\ngot  %+v\nwant %+v", file, known.byID[id], j)
			}
		}
		if len(known.byID) != len(want) {
			t.Errorf("%s: %d jobs, want %d", file, len(known.byID), len(want))
		}
	}
}

func TestJSONShapes(t *testing.T) {
	tests := []struct {
		into any
		in   string
		want any
	}{
		{new(jsonNumber), `7`, jsonNumber{7, true}},
		{new(jsonNumber), `{"set":true,"infinite":false,"number":7}`, jsonNumber{7, true}},
		{new(jsonNumber), `{"number":7}`, jsonNumber{7, true}},
		{new(jsonNumber), `{"set":false,"infinite":false,"number":7}`, jsonNumber{}},
		{new(jsonNumber), `{"set":true,"infinite":true,"number":0}`, jsonNumber{}},
		{new(jsonNumber), `{}`, jsonNumber{}},
		{new(jsonNumber), `null`, jsonNumber{}},
		{new(jsonNumber), `"x"`, jsonNumber{}},
		{new(jsonNumber), `1e300`, jsonNumber{}},
		{new(jsonText), `"a"`, jsonText("a")},
		{new(jsonText), `null`, jsonText("")},
		{new(jsonText), `{"job":"a"}`, jsonText("")},
		{new(jsonTexts), `"RUNNING"`, jsonTexts{"RUNNING"}},
		{new(jsonTexts), `["RUNNING","COMPLETING"]`, jsonTexts{"RUNNING", "COMPLETING"}},
		{new(jsonTexts), `[]`, jsonTexts{}},
		{new(jsonTexts), `7`, jsonTexts(nil)},
		{new(jsonExit), `256`, jsonExit("1:0")},
		{new(jsonExit), `{"set":true,"infinite":false,"number":9}`, jsonExit("0:9")},
		{new(jsonExit), `{"return_code":0,"signal":{"signal_id":15,"name":"TERM"}}`, jsonExit("0:15")},
		{new(jsonExit), `{"status":["ERROR"],"return_code":{"set":true,"number":3},"signal":{"id":{"set":false,"number":0},"name":""}}`, jsonExit("3:0")},
		{new(jsonExit), `{"return_code":3,"signal":null}`, jsonExit("3:0")},
		{new(jsonExit), `{"status":"PENDING"}`, jsonExit("")},
		{new(jsonExit), `-1`, jsonExit("")},
		{new(jsonExit), `[]`, jsonExit("")},
	}
	for _, tt := range tests {
		if err := json.Unmarshal([]byte(tt.in), tt.into); err != nil {
			t.Errorf("%s: %v", tt.in, err)
		} else if got := reflect.ValueOf(tt.into).Elem().Interface(); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%T of %s: %#v, want %#v", tt.want, tt.in, got, tt.want)
		}
	}
	for in, want := range map[string]State{
		"RUNNING": StateRunning, "RUNNING COMPLETING": StateCompleting, "COMPLETING FAILED": StateCompleting,
		"PENDING REQUEUED": StateRequeued, "FAILED LAUNCH_FAILED": StateFailed, "": StateUnknown,
	} {
		if got := jsonState(strings.Fields(in)); got != want {
			t.Errorf("the states %q are %s, want %s", in, got, want)
		}
	}
}

func TestElapsed(t *testing.T) {
	now := time.Unix(2_000_000, 0)
	set := func(n int64) jsonNumber { return jsonNumber{n, true} }
	tests := []struct {
		state      State
		start, end jsonNumber
		want       string
	}{
		{StateRunning, set(2_000_000 - 5), set(3_000_000), "0:05"},
		{StateRunning, set(2_000_000 - 90_061), jsonNumber{}, "1-01:01:01"},
		{StateCompleted, set(1_000_000), set(1_003_600), "1:00:00"},
		{StatePending, set(1_000_000), jsonNumber{}, "0:00"},
		{StateRunning, set(2_000_001), jsonNumber{}, "0:00"},
		{StateCompleted, set(1), set(1 << 52), "0:00"},
	}
	for _, tt := range tests {
		if got := elapsed(tt.state, tt.start, tt.end, now); got != tt.want {
			t.Errorf("%s from %d to %d: %s, want %s", tt.state, tt.start.n, tt.end.n, got, tt.want)
		}
	}
}

// Which calls a version gets, and that an answer which cannot be read is asked
// for again as text.
func TestStateJSON(t *testing.T) {
	fixture, err := os.ReadFile("testdata/squeue/24.11.json")
	if err != nil {
		t.Fatal(err)
	}
	text := "12|12|N/A|RUNNING|n1|0:05|s|e|0|0|None|j\n"
	program := func(json string) string {
		return record + `if [ "$1" = --json ]; then ` + json + "\nelse\n" + show(text) + "fi"
	}
	tests := []struct {
		name, version, json string
		want                State
		calls               string
		err                 string
	}{
		{"unknown version", "", mustNotRun, StateRunning, "--noheader", ""},
		{"22.05", "22.05.8", mustNotRun, StateRunning, "--noheader", ""},
		{"24.11", "slurm 24.11.4", show(string(fixture)), StateFailed, "--json", ""},
		{"no JSON", "23.02", `echo 'squeue: error: plugin not found'`, StateRunning, "--json --noheader", ""},
		{"JSON without jobs", "23.02", `echo '{"meta":{}}'`, StateRunning, "--json --noheader", ""},
		{"JSON without ids", "23.02", `echo '{"jobs":[{"job_id":"x"}]}'`, StateRunning, "--json --noheader", ""},
		{"JSON refused", "23.02", `echo 'squeue: fatal: JSON plugin loading failure' >&2; exit 1`, StateRunning, "--json --noheader", ""},
		{"unknown job", "23.02", forgotten, StateUnknown, "--json", ""},
		{"controller down", "23.02", downSqueue, "", "--json", "Unable to contact"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fake := newFakeSlurm(t, map[string]string{"squeue": program(tt.json), "sacct": noAccounts})
			fake.Version = tt.version
			got, err := fake.State(t.Context(), "12")
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("%v, want %q", err, tt.err)
			}
			if err == nil && got[0].State != tt.want {
				t.Errorf("%+v, want %s", got, tt.want)
			}
			var first []string
			for _, call := range fake.calls(t) {
				first = append(first, call[1])
			}
			if s := strings.Join(first, " "); s != tt.calls {
				t.Errorf("called with %s, want %s", s, tt.calls)
			}
			if tt.calls == "--json" && !slices.Equal(fake.calls(t)[0], []string{"squeue", "--json", "--states=all", "--jobs=12"}) {
				t.Errorf("called %q", fake.calls(t)[0])
			}
		})
	}
}

func TestHasJSON(t *testing.T) {
	for version, want := range map[string]bool{
		"": false, "22.05.8": false, "23.02": true, "23.02.7": true, "slurm-wlm 22.05.8": false, "slurm 24.11.0-0rc1": true, "25": false, "25.05": true,
	} {
		if got := hasJSON(version); got != want {
			t.Errorf("%q: %v", version, got)
		}
	}
}

func FuzzParseSqueueJSON(f *testing.F) {
	files, err := filepath.Glob("testdata/squeue/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"jobs":[{"job_id":1,"job_state":null,"exit_code":[],"start_time":{"set":true,"number":-1}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		records, err := parseSqueueJSON(data, time.Unix(1795255321, 0))
		if err != nil && records != nil {
			t.Fatal("records and an error")
		}
		for _, r := range records {
			if !isID(r.raw) || r.state.State == "" || r.state.Restarts < -1 || !r.state.Done() && r.state.ExitCode != "" {
				t.Fatalf("%q gives %+v", data, r)
			}
		}
	})
}
