// Package metrics writes a run's metrics as JSON lines, one object per line. After any number of
// stops and resumes, the file equals the file of an undisturbed run, except for times and
// rates.
//
// It guarantees that lines are written atomically, and that resuming at a step removes the lines of
// later steps, which will be written again. It does not plot, aggregate, or rotate.
package metrics

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/atomicfile"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

// MaxLine is the maximum size of a line in bytes: a line for 10,000 ranks has 80 KB.
const MaxLine = 4 << 20

// A rank is a straggler if it computes StragglerRatio times as long as the median rank, by at least
// StragglerTime in a step and StragglerShare of all the time, in StragglerIntervals consecutive
// intervals. Single intervals of short steps differ by chance. The trainer decides; the log, the
// metrics, and all views name the same ranks.
const (
	StragglerRatio     = 1.5
	StragglerTime      = 2 * time.Millisecond
	StragglerShare     = 0.1
	StragglerIntervals = 3
)

// A Record is one line.
type Record struct {
	Kind             string    `json:"kind"` // train, eval, skip
	Step             int       `json:"step"`
	Steps            int       `json:"steps,omitempty"` // total steps, if known
	Epoch            int       `json:"epoch"`
	Epochs           int       `json:"epochs,omitempty"` // total epochs
	Loss             *Number   `json:"loss,omitempty"`
	Accuracy         *Number   `json:"accuracy,omitempty"`
	LR               *Number   `json:"lr,omitempty"`
	SamplesPerSecond *Number   `json:"samples_per_s,omitempty"`
	TokensPerSecond  *Number   `json:"tokens_per_s,omitempty"`  // for tokens only
	StepMillis       *Number   `json:"step_ms,omitempty"`       // duration of a step on rank 0, without work between steps
	LeftSeconds      *Number   `json:"left_s,omitempty"`        // estimated remaining training time
	CommMillis       *Number   `json:"comm_ms,omitempty"`       // communication per step on rank 0, including the wait for other ranks
	CommHidden       *Number   `json:"comm_hidden,omitempty"`   // fraction of it that overlaps computation
	SlowestRank      *int      `json:"slowest_rank,omitempty"`  // rank with the longest computation time
	SlowestRatio     *Number   `json:"slowest_ratio,omitempty"` // its computation time relative to the median
	Straggler        bool      `json:"straggler,omitempty"`     // that rank meets the rule of [StragglerRatio] and the other limits
	ComputeMillis    []Number  `json:"compute_ms,omitempty"`    // computation time per step, by rank
	Path             string    `json:"path,omitempty"`
	Time             time.Time `json:"time"`
}

// Number is a float. JSON has no NaN and no infinities, so they are strings.
type Number float64

// MarshalJSON returns a number, or a string if n is not finite.
func (n Number) MarshalJSON() ([]byte, error) {
	v := float64(n)
	text := strconv.FormatFloat(v, 'g', -1, 64)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		text = strconv.Quote(text)
	}
	return []byte(text), nil
}

// UnmarshalJSON parses the output of MarshalJSON.
func (n *Number) UnmarshalJSON(b []byte) error {
	v, err := strconv.ParseFloat(string(bytes.Trim(b, `"`)), 64)
	*n = Number(v)
	return err
}

// NewNumber returns v as an optional field.
func NewNumber(v float64) *Number { n := Number(v); return &n }

// A Log is an open metrics file.
type Log struct{ f *os.File }

// Open opens the file at path for a run that resumes after the given step. It removes lines of
// later steps and invalid lines, such as an incomplete last line. A symbolic link is an error.
func Open(path string, step int) (*Log, error) {
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("open metrics: %w", err)
	}
	defer root.Close()
	return OpenIn(root, filepath.Base(path), step)
}

// OpenIn is like [Open], for a name in an open directory.
func OpenIn(root *os.Root, name string, step int) (*Log, error) {
	f, err := openIn(root, name, step)
	if err != nil {
		return nil, fmt.Errorf("open metrics: %w", err)
	}
	return &Log{f}, nil
}

func openIn(root *os.Root, name string, step int) (*os.File, error) {
	if err := trim(root, name, step); err != nil {
		return nil, err
	}
	// A Root follows links within the directory and ignores O_NOFOLLOW.
	if info, err := root.Lstat(name); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return nil, &fs.PathError{Op: "open", Path: name, Err: safefile.ErrLink}
	}
	return root.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

// trim rewrites the file without lines that will be written again.
func trim(root *os.Root, name string, step int) error {
	f, err := safefile.OpenIn(root, name, safefile.NoFollow)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	old, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	var keep bytes.Buffer
	lines := bufio.NewScanner(bytes.NewReader(old))
	lines.Buffer(nil, MaxLine)
	for lines.Scan() {
		var r Record
		// A skipped step is recorded with the number of steps before it.
		if json.Unmarshal(lines.Bytes(), &r) == nil && (r.Step < step || r.Step == step && r.Kind != "skip") {
			keep.Write(lines.Bytes())
			keep.WriteByte('\n')
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read %q: %w", name, err)
	}
	if bytes.Equal(keep.Bytes(), old) {
		return nil
	}
	return atomicfile.WriteIn(root, name, atomicfile.Options{}, func(w io.Writer) error {
		_, err := w.Write(keep.Bytes())
		return err
	})
}

// Write appends a record.
func (l *Log) Write(r Record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if _, err := l.f.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	return nil
}

// Close closes the file.
func (l *Log) Close() error { return l.f.Close() }
