package trace

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/ddpbatch/ddpbatch/internal/capped"
)

// version is the version of the file format. Other versions cannot be read.
const version = 1

// Rank identifies the rank of a recording.
type Rank struct {
	Rank  int    `json:"rank"`
	Ranks int    `json:"ranks"` // of the job
	Node  int    `json:"node"`  // node rank; ranks of a node share a clock
	Host  string `json:"host"`
}

// Recording holds the recorded spans of a rank.
type Recording struct {
	Version int `json:"version"`
	Rank
	ID       uint64     `json:"id"` // equal on all ranks of an attempt
	First    int        `json:"first"`
	Last     int        `json:"last"`     // requested steps
	Origin   int64      `json:"began_ns"` // Unix time on the node's clock; all other times are relative to it
	Barriers [][2]int64 `json:"met"`      // for each barrier: when this rank entered it and when it left it, in ns
	Count    int        `json:"spans"`    // number of spans that follow
	Dropped  int        `json:"dropped"`  // number of spans that exceeded the buffer
	Spans    []Span     `json:"-"`
}

// Write writes the recording: a line of JSON with the metadata, then one JSON array per span: the
// kind, its number, and the times when it was enqueued, began, and ended, in nanoseconds.
func (r *Recorder) Write(w io.Writer, whose Rank) error {
	head := Recording{Version: version, Rank: whose, ID: r.id, First: r.First, Last: r.Last, Origin: r.origin.UnixNano(), Barriers: r.barriers}
	for t := range r.spans {
		head.Count += len(r.spans[t])
		head.Dropped += r.dropped[t]
	}
	out := bufio.NewWriter(w)
	if err := json.NewEncoder(out).Encode(head); err != nil {
		return err
	}
	var line []byte
	for _, spans := range r.spans {
		for _, s := range spans {
			line = append(strconv.AppendQuote(append(line[:0], '['), s.Kind.String()), ',')
			line = append(strconv.AppendInt(line, int64(s.Number), 10), ',')
			line = append(strconv.AppendInt(line, s.Enqueued, 10), ',')
			line = append(strconv.AppendInt(line, s.Start, 10), ',')
			line = append(strconv.AppendInt(line, s.End, 10), "]\n"...)
			if _, err := out.Write(line); err != nil {
				return err
			}
		}
	}
	return out.Flush()
}

// Read reads a rank's file. If the file is corrupt, it returns an error and the spans before the
// corruption. The Recording is nil if even the first line is invalid.
func Read(file io.Reader) (*Recording, error) {
	limited := &capped.Reader{R: io.LimitReader(file, maxBytes), Limit: maxValue, What: "value"}
	d := json.NewDecoder(limited)
	var r Recording
	if err := d.Decode(&r); err != nil {
		return nil, fmt.Errorf("no first line: %w", unexpectedEOF(err))
	}
	switch {
	case r.Version != version:
		return nil, fmt.Errorf("file version %d is not supported; this program reads version %d", r.Version, version)
	case r.Rank.Rank < 0 || r.Rank.Rank >= r.Ranks || r.Node < 0 || r.First < 1 || r.Last < r.First || r.Count < 0:
		return nil, errors.New("invalid first line")
	case r.Ranks > maxRanks || r.Count > int(tracks)*maxSpans || len(r.Barriers) > 2*numBarriers:
		return nil, fmt.Errorf("the first line has more than %d ranks, %d spans, or %d barriers", maxRanks, int(tracks)*maxSpans, 2*numBarriers)
	case r.Origin < 0 || r.Origin > latest || slices.ContainsFunc(r.Barriers, func(m [2]int64) bool { return !isInterval(m[0], m[1]) }):
		return nil, errors.New("the first line has invalid times")
	}
	for i := range r.Count {
		var s Span
		limited.Next()
		if err := d.Decode(&s); err != nil {
			return &r, fmt.Errorf("span %d of %d: %w", i+1, r.Count, unexpectedEOF(err))
		}
		r.Spans = append(r.Spans, s)
	}
	return &r, nil
}

// maxBytes is the maximum size of a recording. A recorder with full buffers writes less. Another user
// may own the file.
const maxBytes = 512 << 20

// maxValue is the maximum size in bytes of the first line or of a span. Parsing a list of a few hundred
// megabytes would need several gigabytes of memory.
const maxValue = 1 << 20

// maxRanks is the maximum number of ranks of a job in a recording.
const maxRanks = 1 << 22

// Limits of clock values: until the year 2116, and a duration of 100 days.
const (
	latest  = 1 << 62
	longest = 1 << 53
)

func isInterval(from, to int64) bool { return from >= 0 && from <= to && to <= longest }

// unexpectedEOF converts io.EOF to io.ErrUnexpectedEOF.
func unexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// UnmarshalJSON parses a span as written by [Recorder.Write].
func (s *Span) UnmarshalJSON(b []byte) error {
	var name string
	var fields []json.RawMessage
	if err := json.Unmarshal(b, &fields); err != nil {
		return err
	}
	if len(fields) != 5 {
		return fmt.Errorf("%d fields, not 5", len(fields))
	}
	for i, to := range []any{&name, &s.Number, &s.Enqueued, &s.Start, &s.End} {
		if err := json.Unmarshal(fields[i], to); err != nil {
			return err
		}
	}
	for k := range kinds {
		if k.String() == name {
			s.Kind = k
			if !isInterval(s.Enqueued, s.Start) || !isInterval(s.Start, s.End) {
				return fmt.Errorf("invalid times: queued at %d ns, from %d ns to %d ns", s.Enqueued, s.Start, s.End)
			}
			return nil
		}
	}
	return fmt.Errorf("unknown kind of span %q", name)
}
