package report

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

// Metrics holds the records of metrics.jsonl, by kind and in order. If the file has hundreds
// of thousands of lines, it holds every nth record.
type Metrics struct {
	Train, Eval []metrics.Record
	Skipped     int // number of skipped steps
	Unparsed    int // number of lines that cannot be parsed
}

// maxMetrics is the maximum size of metrics.jsonl in bytes. It allows about three million
// lines.
const maxMetrics = 1 << 30

// maxWeight is the maximum sum of the weights of the stored records of one kind. It
// corresponds to about 150 MB of memory.
const maxWeight = 1 << 18

// weight returns the memory of a record, in units of about 500 bytes. A short line in another
// user's file can need much more memory than its length.
func weight(m *metrics.Record) int { return 1 + (8*len(m.ComputeMillis)+len(m.Path))/512 }

// A thinner stores records. If there are too many, it keeps every nth record.
type thinner struct {
	records []metrics.Record
	weight  int
	stride  int             // every stride-th record is stored; 0 means 1
	seen    int             // number of records
	last    *metrics.Record // newest record if it is not stored, otherwise nil
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

// all returns the stored records and the newest one.
func (t *thinner) all() []metrics.Record {
	if t.last != nil {
		return append(t.records, *t.last)
	}
	return t.records
}

func (f *Metrics) isEmpty() bool { return len(f.Train)+len(f.Eval) == 0 }

// readMetrics reads the metrics in path. It returns empty Metrics if the file does not exist.
// Unparsed does not include an incomplete last line, because the trainer may still be writing it.
func readMetrics(path string) (Metrics, error) {
	f, err := rundir.OpenFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Metrics{}, nil
	}
	if err != nil {
		return Metrics{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && info.Size() > maxMetrics {
		err = fmt.Errorf("file is larger than %d MiB", maxMetrics>>20)
	}
	if err != nil {
		return Metrics{}, err
	}
	return parseMetrics(io.LimitReader(f, maxMetrics))
}

func parseMetrics(r io.Reader) (f Metrics, err error) {
	var train, eval thinner
	defer func() { f.Train, f.Eval = train.all(), eval.all() }()
	lines := bufio.NewReaderSize(r, metrics.MaxLine)
	for {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			f.Unparsed++
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

func (f *Metrics) add(line []byte, train, eval *thinner) {
	var m metrics.Record
	if json.Unmarshal(line, &m) != nil {
		f.Unparsed++
		return
	}
	m.ComputeMillis = slices.Clone(m.ComputeMillis) // a repeated key leaves the memory of the longest list
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

// series returns one point for each record that has the value.
func series(records []metrics.Record, value func(*metrics.Record) *metrics.Number) []point {
	var points []point
	for i := range records {
		if v := value(&records[i]); v != nil {
			points = append(points, point{float64(records[i].Step), float64(*v)})
		}
	}
	return points
}

func lossOf(m *metrics.Record) *metrics.Number     { return m.Loss }
func accuracyOf(m *metrics.Record) *metrics.Number { return m.Accuracy }

// rateOf returns the tokens per second for text and token data, or else the samples per
// second.
func rateOf(m *metrics.Record) *metrics.Number {
	if m.TokensPerSecond != nil {
		return m.TokensPerSecond
	}
	return m.SamplesPerSecond
}

// stepTimeOf returns the time per step in ms.
func stepTimeOf(m *metrics.Record) *metrics.Number { return m.StepMillis }

// sortedValues returns the finite values of the records in ascending order.
func sortedValues(records []metrics.Record, of func(*metrics.Record) *metrics.Number) (values []float64) {
	for _, point := range series(records, of) {
		if finite(point.y) {
			values = append(values, point.y)
		}
	}
	slices.Sort(values)
	return values
}

// exposedTime returns the time per step that rank 0 waited for communication, and its time for the
// whole step, both in ms. It returns false if the record does not contain these values.
func exposedTime(m *metrics.Record) (wait, step float64, ok bool) {
	if m.CommMillis == nil || m.CommHidden == nil || len(m.ComputeMillis) == 0 {
		return 0, 0, false
	}
	wait = float64(*m.CommMillis) * (1 - float64(*m.CommHidden))
	step = wait + float64(m.ComputeMillis[0])
	return wait, step, finite(wait) && finite(step) && step > 0
}

// finite reports whether a value can be drawn and used in calculations. Values of at least
// 1e100 are treated as infinite.
func finite(v float64) bool { return math.Abs(v) < 1e100 }
