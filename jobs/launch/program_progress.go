package launch

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/launch/output"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/trainlog"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

// progressInterval is the interval at which the launcher reads the output of a user's program.
const progressInterval = 2 * time.Second

// maxParseTime limits the time to parse lines of output in each interval. Without it, a program that
// prints megabytes would take a core from the ranks. The remaining lines of the interval are skipped,
// see progressRecorder.skipped. Tests change it.
var maxParseTime = progressInterval / 10

// minRateWindow is the minimum time over which the launcher computes the duration of a step, if
// the program does not print it. Lines arrive in bursts of up to progressInterval.
const minRateWindow = 3 * progressInterval

// A progressRecorder reads the progress of a user's program and writes it to metrics.jsonl,
// where all commands find it. The program appends JSON lines to a file, or its output is read.
type progressRecorder struct {
	dir    rundir.Dir
	run    string // ID of the run
	say    func(string)
	parser *trainlog.Parser
	output *trainlog.Follower // of the ranks; nil if unknown or not read
	source *trainlog.Source   // files of command.progress.file; nil if it is not set
	path   string             // of the ranks' output; empty if unknown
	total  int                // number of steps; 0 if unknown
	export *programExporter
	file   *trainlog.Follower // file that the program writes
	wrote  bool               // the program writes that file, so its output does not count

	log    *metrics.Log
	failed bool // metrics.jsonl cannot be written
	first  *metrics.Record
	newest int // newest step; -1 before the first

	skipped bool // the last read skipped output, which may have a newer step
}

// newProgressRecorder returns a recorder for the next attempt. It ignores output of earlier
// attempts.
func newProgressRecorder(o Options) (*progressRecorder, error) {
	p := o.Job.Command.Progress
	patterns := jobs.Strings(p.Patterns)
	parser, err := trainlog.New(patterns, countsFromZero(o.Dir, patterns))
	if err != nil {
		return nil, err
	}
	parser.ContinueSteps(newestSteps(o.Dir))
	record, err := o.Dir.ReadRecord()
	if err != nil {
		return nil, err
	}
	r := &progressRecorder{dir: o.Dir, run: record.Run, say: o.Say, parser: parser, total: p.TotalSteps, newest: -1}
	r.file = trainlog.Follow(opener(o.Dir, o.Dir.ProgramMetrics()), sizeOf(o.Dir, o.Dir.ProgramMetrics()))
	r.export = newProgramExporter(o, record.Run)
	if p.File != "" {
		if r.source, err = newProgressSource(o, parser, record.Run); err != nil {
			return nil, err
		}
	}
	r.path = o.Dir.OutputLog(record)
	if path := r.path; path != "" && (r.source == nil || len(patterns) > 0) {
		r.output = trainlog.Follow(opener(o.Dir, path), sizeOf(o.Dir, path))
	}
	return r, nil
}

// newProgressSource returns the source for command.progress.file.
func newProgressSource(o Options, parser *trainlog.Parser, run string) (*trainlog.Source, error) {
	c := o.Job.Command
	for group, name := range c.Progress.Names.All() {
		if err := parser.SetName(group, name); err != nil {
			return nil, err
		}
	}
	path := o.programPath(c.Progress.File, run)
	return trainlog.NewSource(parser, path, trainlog.Format(c.Progress.ResolvedFormat()))
}

// maxEpochSearch is the maximum number of bytes of output in which firstEpoch searches.
const maxEpochSearch = 256 << 10

// firstEpoch reports whether the first epoch in the output of the run's first attempt is 0. Later
// attempts may have resumed at any epoch. Known is false if that output is not retained or has no epoch.
func firstEpoch(dir rundir.Dir, patterns []string) (isZero, known bool) {
	for _, base := range []string{output.RankBase(0), output.NodeBase(0)} {
		f, err := dir.OpenRankOutput(1, output.Parts(base)[0])
		if err != nil {
			continue
		}
		text, _ := io.ReadAll(io.LimitReader(f, maxEpochSearch))
		f.Close()
		parser, err := trainlog.New(patterns, false)
		if err != nil {
			return false, false
		}
		started := time.Now()
		for line := range strings.FieldsFuncSeq(string(text), func(r rune) bool { return r == '\n' || r == '\r' }) {
			parser.Line(line)
			if isZero, known = parser.CountsFromZero(); known || time.Since(started) > maxParseTime {
				return isZero, known
			}
		}
	}
	return false, false
}

// countsFromZero reports whether the epochs that the program prints count from 0. If the output of the
// first attempt does not show this, countsFromZero reports whether an earlier attempt recorded epoch 0 of
// a program that prints only epochs. Its first step is then 0, and all steps are epochs.
func countsFromZero(dir rundir.Dir, patterns []string) bool {
	if isZero, known := firstEpoch(dir, patterns); known {
		return isZero
	}
	f, err := dir.OpenPath(dir.Metrics())
	if err != nil {
		return false
	}
	defer f.Close()
	records, zero := json.NewDecoder(io.LimitReader(f, metrics.MaxLine)), false
	for {
		var m metrics.Record
		switch {
		case records.Decode(&m) != nil:
			return zero
		case m.Kind != "train":
		case m.Step > 0:
			return zero && m.Step == m.Epoch
		default:
			zero = true
		}
	}
}

// newestSteps returns the newest step of each epoch that earlier attempts have recorded. It reads only the
// end of a long file.
func newestSteps(dir rundir.Dir) map[int]int {
	newest := map[int]int{}
	f, err := dir.OpenPath(dir.Metrics())
	if err != nil {
		return newest
	}
	defer f.Close()
	start := max(0, sizeOf(dir, dir.Metrics())-metrics.MaxLine)
	lines := bufio.NewScanner(io.NewSectionReader(f, start, metrics.MaxLine))
	lines.Buffer(nil, metrics.MaxLine)
	for lines.Scan() {
		var m metrics.Record
		if json.Unmarshal(lines.Bytes(), &m) == nil && m.Kind == "train" {
			newest[m.Epoch] = max(newest[m.Epoch], m.Step)
		}
	}
	return newest
}

// opener returns a function that opens a file in the run directory.
func opener(dir rundir.Dir, path string) func() (*os.File, error) {
	return func() (*os.File, error) { return dir.OpenPath(path) }
}

// sizeOf returns the size of a file in the run directory, or 0 if it does not exist.
func sizeOf(dir rundir.Dir, path string) int64 {
	info, err := dir.StatPath(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// recordProgress records the progress of the attempt's program until the returned function is
// called. For the built-in trainer, rank 0 records the metrics.
func (a *attempt) recordProgress() (stop func()) {
	if a.o.Job.Command == nil {
		return func() {}
	}
	r, err := newProgressRecorder(a.o)
	if err != nil {
		a.o.Say(fmt.Sprintf("warning: read the progress of the program: %v; the run continues without metrics", err))
		return func() {}
	}
	r.followOutput(a)
	w := a.newProgramWatch(r.run, r.path)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		defer w.close()
		tick := time.NewTicker(progressInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				r.read()
				w.check(r.newest, r.skipped)
			case <-done:
				r.read()
				if r.source != nil && !r.wrote {
					r.source.Flush(r.write)
				}
				r.close()
				return
			}
		}
	}()
	return func() {
		close(done)
		<-ended
		a.programStep = r.newest
	}
}

// read records the progress since the last call. Errors of reading are ignored: the log may not
// exist yet, or a file system may be unavailable for a while.
func (r *progressRecorder) read() {
	r.skipped = false
	_ = r.file.Read(func(line string) {
		for _, m := range r.parser.ParseJSON(line) {
			r.wrote = true
			r.write(m)
		}
	})
	if r.source != nil && !r.wrote {
		if err := r.source.Read(r.write); err != nil {
			r.say(fmt.Sprintf("warning: %v; the run continues without its metrics", err))
		}
	}
	if r.output == nil || r.wrote {
		return
	}
	started := time.Now()
	_ = r.output.Read(func(line string) {
		if time.Since(started) > maxParseTime {
			r.skipped = true
			return
		}
		for _, m := range r.parser.Line(outputLabel.ReplaceAllString(line, "")) {
			r.write(m)
		}
	})
	r.skipped = r.skipped || r.output.Gap()
}

func (r *progressRecorder) write(m metrics.Record) {
	m.Time = time.Now().UTC()
	r.newest = max(r.newest, m.Step)
	if m.Steps == 0 {
		m.Steps = r.total
	}
	if m.Kind == "train" {
		r.addSpeed(&m)
	}
	r.export.write(m)
	if r.failed {
		return
	}
	var err error
	if r.log == nil {
		// A resumed program repeats the steps after its checkpoint.
		r.log, err = openMetrics(r.dir, m.Step-1)
	}
	if err == nil {
		err = r.log.Write(m)
	}
	if err != nil {
		r.failed = true
		r.say(fmt.Sprintf("warning: %v; the run continues without metrics", err))
	}
}

// addSpeed adds the duration of a step and the remaining time, if the program does not print
// them.
func (r *progressRecorder) addSpeed(m *metrics.Record) {
	if r.first == nil {
		first := *m
		r.first = &first
	}
	elapsed, steps := m.Time.Sub(r.first.Time), m.Step-r.first.Step
	if m.StepMillis == nil && elapsed >= minRateWindow && steps > 0 {
		m.StepMillis = metrics.NewNumber(float64(elapsed.Milliseconds()) / float64(steps))
	}
	if m.LeftSeconds == nil && m.StepMillis != nil && m.Steps >= m.Step {
		m.LeftSeconds = metrics.NewNumber(float64(m.Steps-m.Step) * float64(*m.StepMillis) / 1000)
	}
}

// openMetrics opens metrics.jsonl for records after the given step. See rundir.Dir.OpenRoot about held
// directories.
func openMetrics(dir rundir.Dir, step int) (*metrics.Log, error) {
	root, done, err := dir.OpenRoot()
	if err != nil {
		return nil, fmt.Errorf("open metrics: %w", err)
	}
	defer done()
	return metrics.OpenIn(root, filepath.Base(dir.Metrics()), step)
}

func (r *progressRecorder) close() {
	r.export.close()
	if r.log != nil {
		r.log.Close()
	}
}
