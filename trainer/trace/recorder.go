// Package trace records a timeline of training steps: what each rank did, and when. A [Recorder]
// records on a rank, [Recorder.Write] writes the rank's file, [Read] reads it, [ReadDir] reads the
// files of all ranks, and [Merge] merges them into one timeline in the Trace Event Format, which
// Perfetto and chrome://tracing open.
//
// It guarantees:
//
//   - Recording allocates nothing after [Recorder.Reserve].
//   - Spans that do not fit in the buffer are counted and reported.
//   - A corrupt file is detected, and its valid part is used.
//   - The clocks of nodes are aligned with barriers that all ranks pass. The error has a bound
//     (align.go).
//
// It records the host's view: with a GPU, spans of computation show when the host enqueued it, not
// when the GPU ran it. It does not connect ranks and does not instrument other packages: they call
// it.
package trace

import "time"

// Kind is the kind of a span.
type Kind uint8

// The kinds of spans. Some spans have a number; the last word of the comment is its meaning: the
// index of the micro-batch or of the bucket, from 0, or the step, from 1.
const (
	Step       Kind = iota // a training step; step
	Input                  // waiting for a batch and copying it to the device; micro-batch
	Forward                // micro-batch
	Backward               // micro-batch
	Finish                 // after the last backward pass, until gradients and their norm are complete
	Wait                   // for communication, within another span
	ReduceNorm             // all-reduce of the gradient norm, within Finish
	Device                 // waiting for the GPU to return the result of a step
	Optimizer              // the update
	Evaluate               // evaluation of the held-out data
	Save                   // a checkpoint, while training waits for it
	Compare                // comparing weights between ranks
	Report                 // comparing times between ranks
	Reduce                 // all-reduce of gradients; bucket
	Scatter                // reduce-scatter of gradients; bucket
	Gather                 // all-gather of values; bucket
	AsyncSave              // writing a checkpoint in the background
	kinds
)

// Track is a row of the timeline. Its spans are consecutive or nested.
type Track uint8

// The tracks. Only one goroutine at a time records on each.
const (
	Computation   Track = iota
	Communication       // concurrent with the computation
	Background
	tracks
)

// kindInfo describes the kinds; the names are stored in files.
var kindInfo = [kinds]struct {
	name  string
	track Track
	of    string // meaning of its number
}{
	Step:       {"step", Computation, "step"},
	Input:      {"input", Computation, "micro-batch"},
	Forward:    {"forward", Computation, "micro-batch"},
	Backward:   {"backward", Computation, "micro-batch"},
	Finish:     {"finish", Computation, ""},
	Wait:       {"wait", Computation, ""},
	ReduceNorm: {"exchange norm", Computation, ""},
	Device:     {"wait for GPU", Computation, ""},
	Optimizer:  {"optimizer", Computation, ""},
	Evaluate:   {"evaluate", Computation, ""},
	Save:       {"save", Computation, ""},
	Compare:    {"compare weights", Computation, ""},
	Report:     {"compare times", Computation, ""},
	Reduce:     {"all-reduce", Communication, "bucket"},
	Scatter:    {"reduce-scatter", Communication, "bucket"},
	Gather:     {"all-gather", Communication, "bucket"},
	AsyncSave:  {"save in background", Background, ""},
}

// String returns the kind's name.
func (k Kind) String() string { return kindInfo[k].name }

// Span is an interval of time, in nanoseconds since the start of the recording.
type Span struct {
	Enqueued   int64 // communication: when it was enqueued; otherwise Start
	Start, End int64
	Number     int32
	Kind       Kind
}

// numBarriers is the number of barriers at the start of a recording. The first one absorbs
// differences in arrival; of the others, the fastest determines the accuracy.
const numBarriers = 16

// maxSpans is the maximum number of spans per track: 8 MiB.
const maxSpans = 1 << 18

// Recorder records the steps from First to Last, counted from 1. Outside of these steps it records
// nothing. A nil Recorder also records nothing, but Begin, End, and Write must not be called on it.
// Begin and End must be called between steps, while no other goroutine records.
type Recorder struct {
	First, Last int

	on       bool
	id       uint64
	origin   time.Time
	barriers [][2]int64
	spans    [tracks][]Span
	dropped  [tracks]int
}

// New returns a recorder for steps first to last.
func New(first, last int) *Recorder { return &Recorder{First: first, Last: last} }

// Reserve allocates buffers for the spans of all steps, with perStep spans per track and step.
func (r *Recorder) Reserve(perStep int) {
	if r == nil {
		return
	}
	size := min(perStep*(r.Last-r.First+1), maxSpans)
	for t := range r.spans {
		r.spans[t] = make([]Span, 0, size)
	}
	r.barriers = make([][2]int64, 0, numBarriers)
}

// Due reports whether the recording should begin, or end, before this step.
func (r *Recorder) Due(step int) (begin, end bool) {
	if r == nil {
		return false, false
	}
	return !r.on && step >= r.First && step <= r.Last, r.on && step > r.Last
}

// Recording reports whether spans are recorded.
func (r *Recorder) Recording() bool { return r != nil && r.on }

// Begin begins a recording. All ranks must pass the same id. barrier returns when all ranks have
// called it. Begin calls it several times.
func (r *Recorder) Begin(id uint64, barrier func() error) error {
	r.id, r.origin, r.barriers = id, time.Now(), r.barriers[:0]
	for t := range r.spans {
		r.spans[t], r.dropped[t] = r.spans[t][:0], 0
	}
	for range numBarriers {
		entered := time.Since(r.origin)
		if err := barrier(); err != nil {
			return err
		}
		r.barriers = append(r.barriers, [2]int64{int64(entered), int64(time.Since(r.origin))})
	}
	r.on = true
	return nil
}

// End ends the recording. It can be written until the next Begin.
func (r *Recorder) End() { r.on = false }

// Now returns the current time as the start of a span, or the zero time if spans are not recorded.
func (r *Recorder) Now() (t time.Time) {
	if r.Recording() {
		t = time.Now()
	}
	return t
}

// Add adds a span that ends now. It returns the current time as the start of the next span.
func (r *Recorder) Add(k Kind, number int, began time.Time) (ended time.Time) {
	ended = r.Now()
	r.AddUntil(k, number, began, ended)
	return ended
}

// AddQueued adds a span for an operation that was enqueued before it began.
func (r *Recorder) AddQueued(k Kind, number int, enqueued, began, ended time.Time) {
	if !r.Recording() || ended.Before(r.origin) {
		return
	}
	since := func(t time.Time) int64 { return max(0, int64(t.Sub(r.origin))) }
	s := Span{Enqueued: since(enqueued), Start: since(began), End: since(ended), Number: int32(number), Kind: k}
	switch t := kindInfo[k].track; {
	case len(r.spans[t]) == cap(r.spans[t]):
		r.dropped[t]++
	default:
		r.spans[t] = append(r.spans[t], s)
	}
}

// AddUntil adds a span that has ended. A span that began before the recording is cut to the
// recording.
func (r *Recorder) AddUntil(k Kind, number int, began, ended time.Time) {
	r.AddQueued(k, number, began, began, ended)
}
