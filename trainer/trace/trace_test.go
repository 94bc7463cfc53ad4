package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

var whose = Rank{Rank: 1, Ranks: 2, Node: 1, Host: "n2"}

func nobody() error { return nil }

func written(t *testing.T, r *Recorder) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.Write(&b, whose); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestRecorder checks that a recording can be written and read again. Spans that exceed the buffer
// are counted, and spans outside of the steps are skipped.
func TestRecorder(t *testing.T) {
	r := New(100, 101)
	r.Reserve(2)
	before := time.Now()
	if at := r.Add(Step, 99, before); !at.IsZero() {
		t.Error("it records before it begins")
	}
	for _, c := range []struct {
		step       int
		begin, end bool
	}{{99, false, false}, {100, true, false}, {101, true, false}, {102, false, false}} {
		if begin, end := r.Due(c.step); begin != c.begin || end != c.end {
			t.Errorf("before step %d: begin %v, end %v", c.step, begin, end)
		}
	}
	met := 0
	if err := r.Begin(7, func() error { met++; return nil }); err != nil || met != numBarriers {
		t.Fatal(met, err)
	}
	if begin, end := r.Due(102); begin || !end {
		t.Error("after the last step it goes on")
	}
	at := r.Now()
	at = r.Add(Forward, 0, at)
	at = r.Add(Backward, 3, at)
	r.AddUntil(AsyncSave, 0, before, at)     // the part since the recording began
	r.AddUntil(AsyncSave, 0, before, before) // entirely before the recording
	for range 5 {
		r.AddQueued(Reduce, 2, before, at, r.Now())
	}
	r.End()
	r.Add(Optimizer, 0, time.Now())
	text := written(t, r)
	got, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if got.Rank != whose || got.ID != 7 || got.First != 100 || got.Last != 101 || len(got.Barriers) != numBarriers || got.Count != 7 || got.Dropped != 1 {
		t.Errorf("the first line has %+v", got)
	}
	var all []Span
	for _, spans := range r.spans {
		all = append(all, spans...)
	}
	if !reflect.DeepEqual(got.Spans, all) {
		t.Errorf("spans %v, want %v", got.Spans, all)
	}
	if s := r.spans[Background]; len(s) != 1 || s[0].Start != 0 || s[0].End == 0 {
		t.Errorf("in the background %v", s)
	}
	if s := r.spans[Communication][0]; s.Enqueued != 0 || s.Start == 0 || s.Number != 2 {
		t.Errorf("a reduction %v", s)
	}

	// A later recording replaces this one. If ranks cannot begin it, there is no recording.
	broken := errors.New("a rank is lost")
	if err := r.Begin(8, func() error { return broken }); !errors.Is(err, broken) || r.Recording() {
		t.Errorf("without the others: %v, recording %v", err, r.Recording())
	}
	if err := r.Begin(9, nobody); err != nil || r.dropped != [tracks]int{} || len(r.spans[Communication]) != 0 {
		t.Error("a new recording has spans of the one before")
	}
}

// TestRecordingAllocatesNothing checks that a span does not allocate memory, and that a nil
// recorder does not record.
func TestRecordingAllocatesNothing(t *testing.T) {
	r := New(1, 10)
	r.Reserve(50)
	if err := r.Begin(1, nobody); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(1000, func() { r.Add(Forward, 1, r.Now()) }); n != 0 || r.dropped[Computation] == 0 {
		t.Errorf("%v allocations, %d spans dropped", n, r.dropped[Computation])
	}
	var none *Recorder
	none.Reserve(1)
	if begin, end := none.Due(1); begin || end || none.Recording() || !none.Add(Step, 1, none.Now()).IsZero() {
		t.Error("a nil recorder records")
	}
}

const (
	head = `{"version":1,"rank":0,"ranks":2,"node":0,"host":"n1","id":1,"first":1,"last":2,"began_ns":5,"met":[[1,2]],"spans":2,"dropped":0}` + "\n"
	step = `["step",1,10,10,20]` + "\n"
)

// TestCorruptRecording checks that Read returns the valid part of a corrupt file, with the
// position of the corruption.
func TestCorruptRecording(t *testing.T) {
	for name, c := range map[string]struct {
		text, err string
		spans     int // -1: not even the first line
	}{
		"whole":            {head + step + step, "", 2},
		"empty":            {"", "no first line: unexpected EOF", -1},
		"torn first line":  {head[:40], "no first line: unexpected EOF", -1},
		"other version":    {strings.Replace(head, `n":1,`, `n":2,`, 1), "file version 2 is not supported; this program reads version 1", -1},
		"rank of no job":   {strings.Replace(head, `"rank":0`, `"rank":2`, 1), "invalid first line", -1},
		"too many ranks":   {strings.Replace(head, `"ranks":2`, `"ranks":9000000000000000000`, 1), "the first line has more than", -1},
		"too many spans":   {strings.Replace(head, `"spans":2`, `"spans":9000000`, 1), "the first line has more than", -1},
		"a clock of 2200":  {strings.Replace(head, `"began_ns":5`, `"began_ns":7258118400000000000`, 1), "invalid times", -1},
		"met before":       {strings.Replace(head, `[1,2]`, `[2,1]`, 1), "invalid times", -1},
		"a span is gone":   {head + step, "span 2 of 2: unexpected EOF", 1},
		"torn span":        {head + step + step[:9], "span 2 of 2: unexpected EOF", 1},
		"unknown kind":     {head + step + `["dance",1,1,10,20]`, `span 2 of 2: unknown kind of span "dance"`, 1},
		"ends before":      {head + `["step",1,20,20,10]`, "span 1 of 2: invalid times: queued at 20 ns, from 20 ns to 10 ns", 0},
		"asked after":      {head + `["step",1,21,20,30]`, "span 1 of 2: invalid times: queued at 21 ns, from 20 ns to 30 ns", 0},
		"too few numbers":  {head + `["step",1,20,30]`, "span 1 of 2: 4 fields, not 5", 0},
		"long first line":  {strings.Replace(head, `[1,2]`, strings.Repeat("[1,2],", 1<<20)+`[1,2]`, 1), "no end of a value within", -1},
		"long span":        {head + step + "[" + strings.Repeat("0,", 1<<20) + "0]", "span 2 of 2: no end of a value within", 1},
		"zeros by a crash": {head + step + "\x00\x00\x00", "span 2 of 2: invalid character", 1},
	} {
		r, err := Read(strings.NewReader(c.text))
		switch {
		case c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: %v, want %q", name, err, c.err)
		case c.spans < 0 && r != nil || c.spans >= 0 && (r == nil || len(r.Spans) != c.spans):
			t.Errorf("%s: %+v, want %d spans", name, r, c.spans)
		}
	}
}

// TestAlign checks that the error of the clock offsets is within align's bound for any message
// latency.
func TestAlign(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		ahead := []int64{0, draw.Int64N(2e9) - 1e9, draw.Int64N(2e9) - 1e9} // of each node's clock
		all := make([]*Recording, 6)
		for i := range all {
			node := i / 2
			all[i] = &Recording{Rank: Rank{Rank: i, Ranks: len(all), Node: node}, Origin: 1e18 + ahead[node] + draw.Int64N(1e6)}
		}
		for now, round := int64(1e18+1e6), 0; round < numBarriers; round++ {
			came, last := make([]int64, len(all)), int64(0)
			for i := range came {
				came[i] = now + draw.Int64N(1e4)
				last = max(last, came[i])
			}
			for i, r := range all {
				knew := last + 100 + draw.Int64N(3e4)
				now = max(now, knew)
				since := r.Origin - ahead[r.Node]
				r.Barriers = append(r.Barriers, [2]int64{came[i] - since, knew - since})
			}
		}
		c := align(all)
		for node, d := range ahead {
			if off := c.offset[node] - d; max(off, -off) > c.maxError || len(c.unknown) > 0 {
				t.Fatalf("node %d: %d ns off, said to be within %d", node, off, c.maxError)
			}
		}
		if c.maxError > 2e4 {
			t.Errorf("clocks within %d ns, where a meeting takes 40000 at most", c.maxError)
		}
	}
	// A clock that was set meanwhile, and ranks without a barrier.
	a, b := &Recording{Barriers: [][2]int64{{0, 10}, {20, 30}}}, &Recording{Rank: Rank{Node: 1}, Barriers: [][2]int64{{0, 10}, {1020, 1030}}}
	if c := align([]*Recording{a, b}); !reflect.DeepEqual(c.unknown, []int{1}) || c.maxError != 0 {
		t.Errorf("a clock that was set: %+v", c)
	}
	b.Barriers = nil
	if c := align([]*Recording{a, b}); !reflect.DeepEqual(c.unknown, []int{1}) {
		t.Errorf("without a meeting: %+v", c)
	}
}

// TestAlignManyRanks checks that the time is linear. Another user can give one recording many names: 60,000
// took more than ten minutes when the ranks of two nodes were compared in pairs.
func TestAlignManyRanks(t *testing.T) {
	var all []*Recording
	for i := range 200_000 {
		all = append(all, &Recording{Rank: Rank{Node: i / 100_000}, Barriers: slices.Repeat([][2]int64{{0, 10}}, 2*numBarriers)})
	}
	if c := align(all); c.maxError != 10 || len(c.offset) != 1 || len(c.unknown) > 0 {
		t.Errorf("got %+v", c)
	}
}

// FuzzRead checks that any file content results in an error or in a timeline that is valid JSON.
func FuzzRead(f *testing.F) {
	f.Add(head+step+`["all-reduce",3,10,15,20]`, strings.Replace(head, `"node":0`, `"node":1`, 1)+step+step)
	f.Add(head+step[:9], `{"version":1}`)
	f.Fuzz(func(t *testing.T, one, other string) {
		var all []*Recording
		for _, text := range []string{one, other} {
			if r, err := Read(strings.NewReader(text)); r != nil {
				all = append(all, r)
			} else if err == nil {
				t.Fatal("neither a recording nor an error")
			}
		}
		var out bytes.Buffer
		if _, err := Merge(&out, all); err != nil || !json.Valid(out.Bytes()) {
			t.Fatalf("%v: %s", err, out.Bytes())
		}
		if _, err := Merge(io.Discard, nil); err != nil {
			t.Fatal(err)
		}
	})
}
