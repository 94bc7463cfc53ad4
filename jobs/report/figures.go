package report

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

// Figures are the lines of metrics.jsonl, by kind and in order. Of hundreds of thousands
// of lines, some at equal distances are kept.
type Figures struct {
	Train, Eval []metrics.Record
	Skipped     int // steps that were left out
	Damaged     int // lines that cannot be read
}

// maxFigures is the maximum size of metrics.jsonl in bytes. Three million lines fit.
const maxFigures = 1 << 30

// maxWeight is the maximum of the sum of weights of the records that are kept of one kind.
// Memory for it is about 150 MB.
const maxWeight = 1 << 18

// weight returns the memory that a record needs, in units of about 500 bytes. A short line
// of another user's file can need much more memory than its length.
func weight(m *metrics.Record) int { return 1 + (8*len(m.ComputeMillis)+len(m.Path))/512 }

// A thinner keeps records at equal distances if there are too many to keep all.
type thinner struct {
	records []metrics.Record
	weight  int
	stride  int             // one of so many records is kept; 0 means 1
	seen    int             // number of records
	last    *metrics.Record // nil if it is kept
}

func (t *thinner) add(m metrics.Record) {
	t.last = &m
	if t.seen%max(1, t.stride) == 0 {
		t.records, t.last = append(t.records, m), nil
		t.weight += weight(&m)
	}
	t.seen++
	for t.weight > maxWeight && len(t.records) > 1 {
		kept := (len(t.records) + 1) / 2
		t.weight = 0
		for i := range kept {
			t.records[i] = t.records[2*i]
			t.weight += weight(&t.records[i])
		}
		if len(t.records)%2 == 0 && t.last == nil {
			newest := t.records[len(t.records)-1]
			t.last = &newest
		}
		clear(t.records[kept:])
		t.records, t.stride = t.records[:kept], 2*max(1, t.stride)
	}
}

// all returns the kept records and the last one.
func (t *thinner) all() []metrics.Record {
	if t.last != nil {
		return append(t.records, *t.last)
	}
	return t.records
}

func (f *Figures) empty() bool { return len(f.Train)+len(f.Eval) == 0 }

// readFigures reads the file; there may be none. A last line that is just being written
// is no damage.
func readFigures(path string) (Figures, error) {
	f, err := rundir.OpenFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Figures{}, nil
	}
	if err != nil {
		return Figures{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && info.Size() > maxFigures {
		err = fmt.Errorf("it is larger than %d MiB", maxFigures>>20)
	}
	if err != nil {
		return Figures{}, err
	}
	return parseFigures(io.LimitReader(f, maxFigures))
}

func parseFigures(r io.Reader) (f Figures, err error) {
	var train, eval thinner
	defer func() { f.Train, f.Eval = train.all(), eval.all() }()
	lines := bufio.NewReaderSize(r, metrics.MaxLine)
	for {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			f.Damaged++
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = lines.ReadSlice('\n')
			}
		} else if err == nil {
			f.add(line, &train, &eval)
		}
		if err == io.EOF {
			return f, nil
		}
		if err != nil {
			return f, err
		}
	}
}

func (f *Figures) add(line []byte, train, eval *thinner) {
	var m metrics.Record
	if json.Unmarshal(line, &m) != nil {
		f.Damaged++
		return
	}
	switch m.Kind {
	case "train":
		train.add(m)
	case "eval":
		eval.add(m)
	case "skip":
		f.Skipped++
	}
}

// point is a value at a step.
type point struct{ x, y float64 }

// series takes one value of each record that has it.
func series(records []metrics.Record, of func(*metrics.Record) *metrics.Number) []point {
	var points []point
	for i := range records {
		if v := of(&records[i]); v != nil {
			points = append(points, point{float64(records[i].Step), float64(*v)})
		}
	}
	return points
}

func lossOf(m *metrics.Record) *metrics.Number     { return m.Loss }
func accuracyOf(m *metrics.Record) *metrics.Number { return m.Accuracy }

// rateOf is tokens a second of text and tokens, else samples.
func rateOf(m *metrics.Record) *metrics.Number {
	if m.TokensPerSecond != nil {
		return m.TokensPerSecond
	}
	return m.SamplesPerSecond
}

// exposed is how much of a step's communication rank 0 waited for, in ms, and the whole
// step of that rank; ok is false where the record does not tell.
func exposed(m *metrics.Record) (wait, step float64, ok bool) {
	if m.CommMillis == nil || m.CommHidden == nil || len(m.ComputeMillis) == 0 {
		return 0, 0, false
	}
	wait = float64(*m.CommMillis) * (1 - float64(*m.CommHidden))
	step = wait + float64(m.ComputeMillis[0])
	return wait, step, finite(wait) && finite(step) && step > 0
}

// finite says whether a value can be drawn, and counted with: a larger one is as good as
// infinite.
func finite(v float64) bool { return math.Abs(v) < 1e100 }
