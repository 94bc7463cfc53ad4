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

// Figures are the lines of metrics.jsonl, by kind and in order.
type Figures struct {
	Train, Eval []metrics.Record
	Skipped     int // steps that were left out
	Damaged     int // lines that cannot be read
}

// maxFigures bounds metrics.jsonl: three million lines fit. All are in memory at once.
const maxFigures = 1 << 30

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

func parseFigures(r io.Reader) (Figures, error) {
	var f Figures
	lines := bufio.NewReaderSize(r, metrics.MaxLine)
	for {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			f.Damaged++
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = lines.ReadSlice('\n')
			}
		} else if err == nil {
			f.add(line)
		}
		if err == io.EOF {
			return f, nil
		}
		if err != nil {
			return f, err
		}
	}
}

func (f *Figures) add(line []byte) {
	var m metrics.Record
	if json.Unmarshal(line, &m) != nil {
		f.Damaged++
		return
	}
	switch m.Kind {
	case "train":
		f.Train = append(f.Train, m)
	case "eval":
		f.Eval = append(f.Eval, m)
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
