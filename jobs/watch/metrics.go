package watch

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"slices"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

// maxTailBytes is the maximum number of bytes that [MetricsTail.Update] reads. It corresponds to
// about 100,000 records.
const maxTailBytes = 32 << 20

// maxTimes is the maximum number of computation times that a MetricsTail stores, and maxPath the maximum
// length of a path in bytes. A list of runs stores the last records of each run, and another user may
// own the file.
const maxTimes, maxPath = 8192, 4096

// MetricsTail holds the newest records of a metrics.jsonl file that grows. It omits the computation
// times of more than 8,192 ranks.
type MetricsTail struct {
	Train, Eval *metrics.Record // last record of each kind, nil before the first

	path string
	last *metrics.Record // last record of any kind
	at   int64           // offset of the next byte to read
	long bool            // the current line is longer than any record
	file os.FileInfo
}

// NewMetricsTail returns a MetricsTail that has not read the file yet. The file does not have to
// exist.
func NewMetricsTail(path string) *MetricsTail { return &MetricsTail{path: path} }

// Update reads the lines that were added since the last call, up to the last 32 MiB. If
// another file has replaced the previous one, which a resumed run may cause, Update starts at
// the beginning of that file. It skips lines that it cannot parse.
func (f *MetricsTail) Update() {
	file, err := rundir.OpenFile(f.path)
	if err != nil {
		return
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return
	}
	if f.file != nil && (!os.SameFile(f.file, info) || info.Size() < f.at) {
		*f = MetricsTail{path: f.path}
	}
	f.file = info
	if end := info.Size() - maxTailBytes; f.at < end {
		// Only the last records matter. Another user may own the file, and can make it as
		// large as a file can be.
		f.at, f.long = end, true
	}
	if _, err := file.Seek(f.at, io.SeekStart); err != nil {
		return
	}
	some := &io.LimitedReader{R: file}
	lines := bufio.NewReader(some)
	for {
		some.N = metrics.MaxLine
		line, err := lines.ReadBytes('\n')
		switch whole := err == nil; {
		case whole && !f.long:
			f.add(line)
		case whole:
			f.long = false // end of the long line
		case some.N > 0:
			return // the line is not complete yet
		default:
			f.long = true
		}
		f.at += int64(len(line))
	}
}

// minRecord is the length of the shortest record that a MetricsTail stores. Another user can fill the file
// with millions of shorter lines, which the JSON decoder would need 12 s to reject.
const minRecord = len(`{"kind":"eval"}`)

func (f *MetricsTail) add(line []byte) {
	if line = bytes.TrimSpace(line); len(line) < minRecord {
		return
	}
	var m metrics.Record
	if json.Unmarshal(line, &m) != nil {
		return
	}
	if len(m.ComputeMillis) > maxTimes {
		m.ComputeMillis = nil
	}
	if len(m.Path) > maxPath {
		m.Path = ""
	}
	m.ComputeMillis = slices.Clone(m.ComputeMillis) // a repeated key leaves the memory of the longest list
	switch m.Kind {
	case "train":
		f.Train = &m
	case "eval":
		f.Eval = &m
	default:
		return
	}
	f.last = &m
}

// communicationShare returns the fraction of the step time, from 0 to 1, during which rank 0 only
// waited for communication. It returns false if the record does not contain this value.
func communicationShare(m *metrics.Record) (share float64, ok bool) {
	if m == nil || m.CommMillis == nil || m.CommHidden == nil || m.StepMillis == nil || *m.StepMillis <= 0 {
		return 0, false
	}
	return min(1, float64(*m.CommMillis)*(1-float64(*m.CommHidden))/float64(*m.StepMillis)), true
}
