package trace

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestOverlappingWaits checks that overlapping waits, which occur only in corrupt recordings,
// count once, and that many overlapping spans need little time.
func TestOverlappingWaits(t *testing.T) {
	wait := func(start, end int64) Span { return Span{Kind: Wait, Start: start, End: end} }
	waits := newWaitTimes([]Span{wait(0, 100), wait(10, 20), {Kind: Backward, Start: 15, End: 500}, wait(90, 110), wait(115, 115), wait(118, 130), wait(140, 150)})
	for _, tt := range []struct{ start, end, want int64 }{
		{50, 120, 62}, {0, 110, 110}, {0, 10, 10}, {110, 118, 0}, {105, 119, 6}, {120, 145, 15}, {130, 140, 0}, {200, 300, 0}, {-5, 0, 0},
	} {
		if got := waits.exposedTime(Span{Start: tt.start, End: tt.end}); got != tt.want {
			t.Errorf("%d to %d: %d ns are waited for, want %d", tt.start, tt.end, got, tt.want)
		}
	}
	var many []Span // a comparison of all pairs would take minutes
	for i := range int64(maxSpans) {
		many = append(many, wait(i, 1<<40))
	}
	waits = newWaitTimes(many)
	for i := range int64(maxSpans) {
		if got := waits.exposedTime(Span{Start: i, End: 1 << 40}); got != 1<<40-i {
			t.Fatalf("span %d: %d ns are waited for", i, got)
		}
	}
}

// TestMerge checks that recordings of two nodes become one timeline that shows the overlap of
// communication, although their clocks differ by one second. The recording of an earlier attempt
// is excluded, and characters that control a terminal are removed.
func TestMerge(t *testing.T) {
	first := &Recording{Rank: Rank{Rank: 0, Ranks: 4, Host: "n1"}, ID: 9, Origin: 5e18 / 4, Barriers: [][2]int64{{0, 1000}},
		Spans: []Span{{Kind: Reduce, Number: 3, Enqueued: 25_000, Start: 30_000, End: 60_001},
			{Kind: Backward, Start: 20_000, End: 40_000}, {Kind: Wait, Start: 45_000, End: 60_000}, {Kind: Finish, Start: 45_000, End: 60_500},
			{Kind: Optimizer, Start: 60_500, End: 70_000}, {Kind: Step, Number: 100, Start: 20_000, End: 70_000}}}
	second := &Recording{Rank: Rank{Rank: 2, Ranks: 4, Node: 1, Host: "\u202en2\u009b2J"}, ID: 9, Origin: first.Origin + 1e9, Barriers: [][2]int64{{0, 1000}}, Dropped: 2,
		Spans: []Span{{Kind: Step, Number: 101, Start: 80_000, End: 90_000}}}
	old := &Recording{Rank: Rank{Rank: 1, Ranks: 4, Host: "n1"}, ID: 8}
	var out bytes.Buffer
	m, err := Merge(&out, []*Recording{second, old, first})
	if err != nil {
		t.Fatal(err)
	}
	want := Merged{Ranks: []int{0, 2}, WorldSize: 4, First: 100, Last: 101, Nodes: 2, ClockError: time.Microsecond, OtherAttempts: []int{1}, Dropped: 2}
	if !reflect.DeepEqual(m, want) {
		t.Errorf("%+v, want %+v", m, want)
	}
	if got := m.Missing(); !reflect.DeepEqual(got, []int{3}) {
		t.Errorf("missing ranks %v, want [3]", got)
	}
	if !json.Valid(out.Bytes()) {
		t.Fatalf("no JSON: %s", &out)
	}
	for _, line := range []string{
		`{"ph":"M","name":"process_name","pid":2,"tid":1,"ts":0.000,"args":{"name":"rank 2 on n22J"}}`,
		`{"ph":"X","name":"step 100","cat":"computation","pid":0,"tid":1,"ts":20.000,"dur":50.000,"args":{"step":100}}`,
		`{"ph":"b","name":"queued","cat":"queue","id":"0.2","pid":0,"tid":2,"ts":25.000,"args":{"operation":"all-reduce 3"}}`,
		`{"ph":"e","name":"queued","cat":"queue","id":"0.2","pid":0,"tid":2,"ts":30.000}`,
		`{"ph":"X","name":"all-reduce 3","cat":"communication","pid":0,"tid":2,"ts":30.000,"dur":30.001,"args":{"bucket":3,"exposed us":15.000,"hidden us":15.001}}`,
		`{"ph":"X","name":"step 101","cat":"computation","pid":2,"tid":1,"ts":80.000,"dur":10.000,"args":{"step":101}}`,
	} {
		if !strings.Contains(out.String(), "\n"+line) {
			t.Errorf("without %s:\n%s", line, &out)
		}
	}
}

// TestMergedString checks the summaries of timelines.
func TestMergedString(t *testing.T) {
	for want, m := range map[string]Merged{
		"1 rank on 1 node, no steps":                            {Ranks: []int{0}, Nodes: 1},
		"2 ranks on 1 node, step 3":                             {Ranks: []int{0, 1}, Nodes: 1, First: 3, Last: 3},
		"2 ranks on 1 node, steps 3 to 5":                       {Ranks: []int{0, 1}, Nodes: 1, First: 3, Last: 5},
		"2 ranks on 2 nodes, steps 3 to 5, clocks within 1.3µs": {Ranks: []int{0, 1}, Nodes: 2, First: 3, Last: 5, ClockError: 1260},
	} {
		if got := m.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
