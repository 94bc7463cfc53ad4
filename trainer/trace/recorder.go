// Package trace is a timeline of training steps: what each rank was at, and when. A
// [Recorder] takes note on a rank, [Recorder.Write] keeps that in a file of the rank,
// which [Read] reads, and [Merge] makes one timeline of all ranks' files in the Trace
// Event Format, which Perfetto and chrome://tracing open.
//
// It promises: recording allocates nothing after [Recorder.Reserve]; what does not fit
// is counted, and told; a damaged file is recognised, and what of it is whole is used;
// clocks of nodes are brought together by moments at which all ranks met, with a bound on
// the error (align.go).
//
// It is the host's view: with a GPU, spans of computation are the time in which the host
// asked for it, not that in which the GPU did it. It does not connect ranks, and does not
// find out what to record: others call it.
package trace

import "time"

// Kind is what a span is about.
type Kind uint8

// The kinds of spans. A span's number is that of the micro-batch, of the bucket or of the
// step, counted from 0, steps from 1.
const (
	Step      Kind = iota // a training step; its number
	Input                 // waiting for a batch and bringing it to the device; micro-batch
	Forward               // micro-batch
	Backward              // micro-batch
	Finish                // after the last backward pass, until gradients and their norm are there
	Wait                  // for communication, within one of the others
	Exchange              // of the norm of gradients, within Finish
	Device                // waiting for the GPU to tell how a step went
	Optimizer             // the update
	Evaluate              // the held-out data
	Save                  // a checkpoint, as far as training waits for it
	Verify                // comparing weights between ranks
	Report                // comparing times between ranks
	Reduce                // gradients are added up for all ranks; bucket
	Scatter               // likewise, for the ranks that they belong to; bucket
	Gather                // values come from the ranks that update them; bucket
	Behind                // a checkpoint is written while training goes on
	kinds
)

// Track is what happens one after the other, or one within the other.
type Track uint8

// The tracks. Only one goroutine at a time records on each.
const (
	Computation   Track = iota
	Communication       // beside the computation
	Background
	tracks
)

// kindInfo is what is known of a kind; names are those in files.
var kindInfo = [kinds]struct {
	name  string
	track Track
	of    string // what its number counts
}{
	Step:      {"step", Computation, "step"},
	Input:     {"input", Computation, "micro-batch"},
	Forward:   {"forward", Computation, "micro-batch"},
	Backward:  {"backward", Computation, "micro-batch"},
	Finish:    {"finish", Computation, ""},
	Wait:      {"wait", Computation, ""},
	Exchange:  {"exchange norm", Computation, ""},
	Device:    {"wait for GPU", Computation, ""},
	Optimizer: {"optimizer", Computation, ""},
	Evaluate:  {"evaluate", Computation, ""},
	Save:      {"save", Computation, ""},
	Verify:    {"compare weights", Computation, ""},
	Report:    {"compare times", Computation, ""},
	Reduce:    {"all-reduce", Communication, "bucket"},
	Scatter:   {"reduce-scatter", Communication, "bucket"},
	Gather:    {"all-gather", Communication, "bucket"},
	Behind:    {"save in background", Background, ""},
}

// String is the kind's name.
func (k Kind) String() string { return kindInfo[k].name }

// Span is a stretch of time, in nanoseconds since the recording began.
type Span struct {
	Asked      int64 // of communication: since when it waited for what was asked for before; else Start
	Start, End int64
	Number     int32
	Kind       Kind
}

// meetings is how often ranks meet when a recording begins: the first time takes up that
// some come later, and of the others the quickest counts.
const meetings = 16

// mostSpans is the spans that there is room for on a track, at most: 8 MiB.
const mostSpans = 1 << 18

// Recorder takes note of the steps from First to Last, counted from 1. A nil Recorder
// does nothing, and so does one outside of these steps. Begin and End are called between
// steps, while nothing else records.
type Recorder struct {
	First, Last int

	on      bool
	id      uint64
	origin  time.Time
	met     [][2]int64
	spans   [tracks][]Span
	dropped [tracks]int
}

// New is a recorder of steps.
func New(first, last int) *Recorder { return &Recorder{First: first, Last: last} }

// Reserve makes room for the spans of all steps, with so many on a track in each.
func (r *Recorder) Reserve(perStep int) {
	if r == nil {
		return
	}
	room := min(perStep*(r.Last-r.First+1), mostSpans)
	for t := range r.spans {
		r.spans[t] = make([]Span, 0, room)
	}
	r.met = make([][2]int64, 0, meetings)
}

// Due says that recording should begin, or end, before this step.
func (r *Recorder) Due(step int) (begin, end bool) {
	if r == nil {
		return false, false
	}
	return !r.on && step >= r.First && step <= r.Last, r.on && step > r.Last
}

// Recording says whether spans are taken note of.
func (r *Recorder) Recording() bool { return r != nil && r.on }

// Begin begins the recording of which all ranks have the same id. meet returns when all
// ranks have called it, and is called some times.
func (r *Recorder) Begin(id uint64, meet func() error) error {
	r.id, r.origin, r.met = id, time.Now(), r.met[:0]
	for t := range r.spans {
		r.spans[t], r.dropped[t] = r.spans[t][:0], 0
	}
	for range meetings {
		came := time.Since(r.origin)
		if err := meet(); err != nil {
			return err
		}
		r.met = append(r.met, [2]int64{int64(came), int64(time.Since(r.origin))})
	}
	r.on = true
	return nil
}

// End ends it. Until the next Begin, what was recorded is there to be written.
func (r *Recorder) End() { r.on = false }

// Now is the present time, to begin a span with; none if spans are not taken note of.
func (r *Recorder) Now() (t time.Time) {
	if r.Recording() {
		t = time.Now()
	}
	return t
}

// Add adds a span that ends now, which it returns for the next one to begin with.
func (r *Recorder) Add(k Kind, number int, began time.Time) (ended time.Time) {
	ended = r.Now()
	r.AddUntil(k, number, began, ended)
	return ended
}

// AddAsked is Add for an operation that was asked for before it began.
func (r *Recorder) AddAsked(k Kind, number int, asked, began time.Time) {
	r.add(k, number, asked, began, r.Now())
}

// AddUntil adds a span that has ended. Of one that began before the recording the part
// since then is taken.
func (r *Recorder) AddUntil(k Kind, number int, began, ended time.Time) {
	r.add(k, number, began, began, ended)
}

func (r *Recorder) add(k Kind, number int, asked, began, ended time.Time) {
	if !r.Recording() || ended.Before(r.origin) {
		return
	}
	since := func(t time.Time) int64 { return max(0, int64(t.Sub(r.origin))) }
	s := Span{Asked: since(asked), Start: since(began), End: since(ended), Number: int32(number), Kind: k}
	switch t := kindInfo[k].track; {
	case len(r.spans[t]) == cap(r.spans[t]):
		r.dropped[t]++
	default:
		r.spans[t] = append(r.spans[t], s)
	}
}
