package trace

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/printable"
)

// Merged describes a merged timeline.
type Merged struct {
	Ranks         []int // ascending
	WorldSize     int   // number of ranks of the job
	First, Last   int   // first and last complete step; 0 without complete steps
	Nodes         int
	ClockError    time.Duration // maximum error of the offset between any node's clock and the first node's
	Unaligned     []string      // hosts with unknown clock offset; their times are not corrected
	OtherAttempts []int         // ranks with a recording of a different attempt, which is excluded
	Dropped       int           // number of spans that exceeded the ranks' buffers
}

// Missing returns the ranks of the job without a recording, in ascending order.
func (m Merged) Missing() []int {
	found := map[int]bool{}
	for _, rank := range slices.Concat(m.Ranks, m.OtherAttempts) {
		found[rank] = true
	}
	var missing []int
	for rank := range m.WorldSize {
		if !found[rank] {
			missing = append(missing, rank)
		}
	}
	return missing
}

// String summarizes the timeline, such as "4 ranks on 1 node, steps 100 to 110".
func (m Merged) String() string {
	line := format.Count(len(m.Ranks), "rank") + " on " + format.Count(m.Nodes, "node")
	switch {
	case m.First == 0:
		line += ", no steps"
	case m.First == m.Last:
		line += fmt.Sprintf(", step %d", m.First)
	default:
		line += fmt.Sprintf(", steps %d to %d", m.First, m.Last)
	}
	if m.Nodes > 1 {
		line += fmt.Sprintf(", clocks within %s", m.ClockError.Round(100*time.Nanosecond))
	}
	return line
}

// event is an event of the Trace Event Format: "Trace Event Format", Nat Duca and Dan Sinclair,
// Google. Times are in microseconds.
type event struct {
	Phase    string         `json:"ph"` // X complete, M metadata, b and e begin and end of events that may overlap
	Name     string         `json:"name"`
	Category string         `json:"cat,omitempty"`
	ID       string         `json:"id,omitempty"`
	Process  int            `json:"pid"` // rank
	Thread   int            `json:"tid"` // track, from 1
	At       micros         `json:"ts"`
	Duration *micros        `json:"dur,omitempty"`
	Args     map[string]any `json:"args,omitempty"`
}

// micros are nanoseconds, written as microseconds.
type micros int64

// MarshalJSON writes all digits.
func (m micros) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "%d.%03d", int64(m)/1e3, int64(m)%1e3), nil
}

// trackNames are the displayed names.
var trackNames = [tracks]string{Computation: "computation", Communication: "communication", Background: "background"}

func (t Track) thread() int { return int(t) + 1 }

// Merge writes the recordings of one attempt as one timeline. If all contains several attempts, it
// uses the newest.
func Merge(w io.Writer, all []*Recording) (Merged, error) {
	all, m := newestAttempt(all)
	c := align(all)
	m.ClockError = c.accuracy()
	unknown := map[int]bool{}
	for _, node := range c.unknown {
		unknown[node] = true
	}
	begin, nodes := int64(0), map[int]bool{}
	for i, r := range all {
		if at := c.origin(r); i == 0 || at < begin {
			begin = at
		}
		m.Ranks, m.WorldSize, m.Dropped = append(m.Ranks, r.Rank.Rank), r.Ranks, m.Dropped+r.Dropped
		if !nodes[r.Node] && unknown[r.Node] {
			m.Unaligned = append(m.Unaligned, r.Host)
		}
		nodes[r.Node] = true
		for _, s := range r.Spans {
			if n := int(s.Number); s.Kind == Step {
				m.First, m.Last = min(cmp.Or(m.First, n), n), max(m.Last, n)
			}
		}
	}
	m.Nodes = len(nodes)

	out := list{w: w}
	out.text(`{"displayTimeUnit":"ms","otherData":`)
	out.value(map[string]any{"ranks": m.WorldSize, "view": "host", "clocks within us": micros(m.ClockError)})
	out.text(`,"traceEvents":[`)
	for _, r := range all {
		events(r, c.origin(r)-begin, out.event)
	}
	out.text("\n]}\n")
	return m, out.err
}

// newestAttempt returns the recordings of the newest attempt, by rank.
func newestAttempt(all []*Recording) (same []*Recording, m Merged) {
	id := uint64(0)
	for _, r := range all {
		id = max(id, r.ID)
	}
	for _, r := range all {
		if r.ID == id {
			same = append(same, r)
		} else {
			m.OtherAttempts = append(m.OtherAttempts, r.Rank.Rank)
		}
	}
	slices.SortFunc(same, func(a, b *Recording) int { return cmp.Compare(a.Rank.Rank, b.Rank.Rank) })
	slices.Sort(m.OtherAttempts)
	return same, m
}

// events calls emit for each event of a rank. It adds shift to times, which makes them times of the
// timeline.
func events(r *Recording, shift int64, emit func(event)) {
	rank := r.Rank.Rank
	about := func(what string, t Track, field string, value any) {
		emit(event{Phase: "M", Name: what, Process: rank, Thread: t.thread(), Args: map[string]any{field: value}})
	}
	about("process_name", Computation, "name", fmt.Sprintf("rank %d on %s", rank, printable.Line(r.Host))) // the recording may be a file of another user
	about("process_sort_index", Computation, "sort_index", rank)
	for t := range tracks {
		about("thread_name", t, "name", trackNames[t])
		about("thread_sort_index", t, "sort_index", t.thread())
	}
	// Enclosing spans come before the spans that they enclose.
	spans := slices.Clone(r.Spans)
	slices.SortStableFunc(spans, func(a, b Span) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.End, a.End), cmp.Compare(a.Kind, b.Kind))
	})
	waits := newWaitTimes(spans)
	for i, s := range spans {
		info := kindInfo[s.Kind]
		e := event{Phase: "X", Name: s.Kind.String(), Category: trackNames[info.track], Process: rank, Thread: info.track.thread(), At: micros(s.Start + shift), Args: map[string]any{}}
		if info.of != "" {
			e.Args[info.of] = s.Number
		}
		if s.Kind == Step || info.of == "bucket" {
			e.Name += " " + strconv.Itoa(int(s.Number))
		}
		if info.track == Communication {
			exposed := waits.exposedTime(s)
			e.Args["exposed us"], e.Args["hidden us"] = micros(exposed), micros(s.End-s.Start-exposed)
			// Several operations may be queued at a time, which only asynchronous events support.
			// Viewers show events of the same name in one row.
			q := e
			q.Phase, q.Name, q.Category, q.ID, q.At = "b", "queued", "queue", fmt.Sprintf("%d.%d", rank, i), micros(s.Enqueued+shift)
			q.Args = map[string]any{"operation": e.Name}
			emit(q)
			q.Phase, q.At, q.Args = "e", e.At, nil
			emit(q)
		}
		took := micros(s.End - s.Start)
		e.Duration = &took
		emit(e)
	}
}

// waitTimes is the union of the waits of the computation, as intervals in ascending order.
type waitTimes []waitTime

// A waitTime is an interval, with the sum of the intervals before it.
type waitTime struct{ start, end, before int64 }

// newWaitTimes returns the union of the waits in spans, which are in ascending order of their starts.
// Waits overlap only in corrupt recordings.
func newWaitTimes(spans []Span) (times waitTimes) {
	for _, s := range spans {
		n := len(times)
		switch {
		case s.Kind != Wait || s.Start == s.End:
		case n == 0:
			times = append(times, waitTime{s.Start, s.End, 0})
		case s.Start <= times[n-1].end:
			times[n-1].end = max(times[n-1].end, s.End)
		default:
			times = append(times, waitTime{s.Start, s.End, times[n-1].before + times[n-1].end - times[n-1].start})
		}
	}
	return times
}

// until returns the sum of the waits before a time.
func (w waitTimes) until(at int64) int64 {
	n, _ := slices.BinarySearchFunc(w, at, func(t waitTime, at int64) int { return cmp.Compare(t.start, at) })
	if n == 0 {
		return 0
	}
	last := w[n-1]
	return last.before + min(last.end, at) - last.start
}

// exposedTime returns the part of a span during which the computation waited. It needs little time even
// if another user has written a recording in which all spans overlap.
func (w waitTimes) exposedTime(s Span) int64 { return w.until(s.End) - w.until(s.Start) }

// list writes JSON incrementally. After an error it does nothing.
type list struct {
	w      io.Writer
	err    error
	events int
}

func (l *list) text(s string) {
	if l.err == nil {
		_, l.err = io.WriteString(l.w, s)
	}
}

func (l *list) value(v any) {
	b, err := json.Marshal(v)
	if l.err == nil {
		l.err = err
	}
	l.text(string(b))
}

func (l *list) event(e event) {
	if l.events++; l.events > 1 {
		l.text(",")
	}
	l.text("\n")
	l.value(e)
}
