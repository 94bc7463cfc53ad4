package rundir

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestLive checks that the live status is read as it was written, and that an incomplete file is
// ignored.
func TestLive(t *testing.T) {
	d := mustCreate(t)
	if l, ok := d.ReadLive(); ok {
		t.Errorf("there is one before the first was written: %+v", l)
	}
	want := Live{Time: time.Unix(5, 0).UTC(), JobID: "18_3", Attempt: 2, Phase: PhaseRunning, Hosts: "n[1-2]", PerNode: 1, Ranks: 2, Joined: 2,
		Nodes: []NodeGroup{{State: "training", Hosts: "n[1-2]", Ranks: []int{0, 1}, Count: 2, Least: 7, Most: 8}}}
	for range 2 { // the second replaces the first
		if err := d.WriteLive(want); err != nil {
			t.Fatal(err)
		}
	}
	if got, ok := d.ReadLive(); !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if m := mode(t, d.Live()); m != 0o600 {
		t.Errorf("mode %o", m)
	}
	if err := os.WriteFile(d.Live(), []byte(`{"phase": `), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, ok := d.ReadLive(); ok {
		t.Errorf("half a file was taken: %+v", l)
	}
}

// TestAttemptsAreBounded checks that a large file of a user who owns the run does not exhaust the
// reader's memory.
func TestAttemptsAreBounded(t *testing.T) {
	tests := []struct {
		name string
		text string
		size int64 // size in bytes to which the test extends the file before the last event
	}{
		{name: "many events", text: strings.Repeat(`{"event":"begin"}`+"\n", 2*maxEvents+5)},
		{name: "large file", size: 1 << 40},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := mustCreate(t)
			if err := os.WriteFile(d.Attempts(), []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if tt.size > 0 {
				if err := os.Truncate(d.Attempts(), tt.size); err != nil {
					t.Fatal(err)
				}
			}
			last := AttemptEvent{Event: AttemptBegan, Time: time.Unix(5, 0).UTC(), JobID: "18", Attempt: 1}
			if err := d.AppendAttempt(last); err != nil {
				t.Fatal(err)
			}
			got, err := d.ReadAttempts()
			if tt.size == 0 && (err != nil || len(got) != maxEvents || !reflect.DeepEqual(got[len(got)-1], last)) {
				t.Errorf("%d events, %v", len(got), err)
			}
			if len(got) > maxEvents {
				t.Errorf("%d events", len(got))
			}
		})
	}
}

// TestAttempts checks that attempts are read as they were written, without an incomplete last
// line.
func TestAttempts(t *testing.T) {
	d := mustCreate(t)
	if got, err := d.ReadAttempts(); err != nil || got != nil {
		t.Errorf("%v, %v", got, err)
	}
	rank := 3
	want := []AttemptEvent{
		{Event: AttemptBegan, Time: time.Unix(5, 0).UTC(), JobID: "18", Attempt: 1, Hosts: "n1", Ranks: 4},
		{Event: AttemptEnded, Time: time.Unix(9, 0).UTC(), JobID: "18", Attempt: 1, Exit: 4, Step: 70, Cause: "rank 3 was lost", Rank: &rank, Host: "n1", Again: true},
	}
	for _, e := range want {
		if err := d.AppendAttempt(e); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.OpenFile(d.Attempts(), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"event": "begin", "ti`); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if got, err := d.ReadAttempts(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}

	// The next launcher's event starts on a new line.
	want = append(want, AttemptEvent{Event: AttemptBegan, Time: time.Unix(20, 0).UTC(), JobID: "19", Attempt: 1})
	if err := d.AppendAttempt(want[2]); err != nil {
		t.Fatal(err)
	}
	if got, err := d.ReadAttempts(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("behind a line without an end: %+v, %v, want %+v", got, err, want)
	}
}

// TestShortLinesAreNotDecoded checks that lines that are shorter than any event are not decoded. Another
// user can fill a file with millions of them.
func TestShortLinesAreNotDecoded(t *testing.T) {
	d := mustCreate(t)
	const lines = 10_000
	if err := os.WriteFile(d.Attempts(), []byte(strings.Repeat("\n{}\n", lines/2)+`{"event":"x"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var all []AttemptEvent
	n := testing.AllocsPerRun(1, func() { all, _ = d.ReadAttempts() })
	if n > lines/10 || len(all) != 1 {
		t.Errorf("got %v allocations and %d events", n, len(all))
	}
}
