package watch

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

// maxUnread is the maximum number of bytes that [Figures.Update] reads. It holds some 100,000
// records.
const maxUnread = 32 << 20

// Figures are the newest lines of a metrics.jsonl that grows.
type Figures struct {
	Train, Eval *metrics.Record // the last of their kinds, nil before the first

	path string
	last *metrics.Record // the last of either
	at   int64           // what has been read
	long bool            // the line that is being read is no record: it is longer than one
	file os.FileInfo
}

// NewFigures has not looked at the file yet, which need not be there.
func NewFigures(path string) *Figures { return &Figures{path: path} }

// Update reads the lines that were added since the last call, at most the last 32 MB. If
// another file has replaced the one before, as a resumed run may do, it starts at the
// beginning of that file. It omits lines that it cannot read.
func (f *Figures) Update() {
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
		*f = Figures{path: f.path}
	}
	f.file = info
	if end := info.Size() - maxUnread; f.at < end {
		// Only the last records count. The owner of the file may be another user, who can
		// make it as large as a file can be.
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
			f.long = false // at last
		case some.N > 0:
			return // the rest of a line may come later
		default:
			f.long = true
		}
		f.at += int64(len(line))
	}
}

func (f *Figures) add(line []byte) {
	var m metrics.Record
	if json.Unmarshal(bytes.TrimSpace(line), &m) != nil {
		return
	}
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

// Communication is the share of a step's time, from 0 to 1, that rank 0 communicated
// and did nothing else; false where that is not known.
func Communication(m *metrics.Record) (share float64, ok bool) {
	if m == nil || m.CommMillis == nil || m.CommHidden == nil || m.StepMillis == nil || *m.StepMillis <= 0 {
		return 0, false
	}
	return min(1, float64(*m.CommMillis)*(1-float64(*m.CommHidden))/float64(*m.StepMillis)), true
}
