package main

import (
	"io"
	"os"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/doctor/symptoms"
	"github.com/ddpbatch/ddpbatch/jobs/launch"
	"github.com/ddpbatch/ddpbatch/jobs/launch/output"
	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
)

// maxDiagnosis is the maximum number of bytes at the end of a log to search for known failures. It
// limits the time that a failed job keeps its nodes.
const maxDiagnosis = 16 << 20

// A diagnosis searches the log of a failed launch for known failures, as `ddpbatch doctor --log`
// does.
type diagnosis struct {
	o     *launch.Options
	path  string // of the log; empty if unknown
	start int64  // where the log of this launch begins
	// attempt is the newest attempt of earlier launches with output of ranks, or 0.
	attempt int
}

// newDiagnosis remembers where the log of a launch and the output of its ranks begin.
func newDiagnosis(o *launch.Options) diagnosis {
	d := diagnosis{o: o, attempt: newestOutput(o.Dir)}
	record, err := o.Dir.ReadRecord()
	if err != nil {
		return d
	}
	d.path = o.Dir.OutputLog(record)
	if info, err := o.Dir.StatPath(d.path); err == nil {
		d.start = info.Size()
	}
	return d
}

// print prints the most likely cause of a failure as the last lines of the log, and adds it to
// failure.json. It prints nothing if it finds no known failure.
func (d diagnosis) print(p *program, result launch.Result) {
	found := d.find(result)
	if found == nil {
		return
	}
	text := found.Name
	if found.Consequence {
		text += " (a consequence of another failure)"
	}
	p.note("diagnosis: %s: %s", text, found.Cause)
	p.note("diagnosis: hint: %s", found.Hint)
	if err := launch.RecordFinding(d.o.Dir, *found); err != nil && !d.o.Dir.IsDeleted() {
		p.note("warning: %v", err)
	}
}

// find searches the log and, if the log lacks the output of ranks, the output of the failed rank.
// It ignores errors, because a diagnosis is optional.
func (d diagnosis) find(result launch.Result) *outcome.Finding {
	var all []symptoms.Found
	if d.path != "" {
		if f, err := d.o.Dir.OpenPath(d.path); err == nil {
			all = scanEnd(f, d.start)
			f.Close()
		}
	}
	c := d.o.Job.Command
	if c != nil && (c.Output == jobs.OutputPerRank || c.Output == jobs.OutputRank0) {
		if attempt := newestOutput(d.o.Dir); attempt > d.attempt {
			for _, name := range output.Parts(output.RankBase(launch.RankOfFailure(result.Failure))) {
				if f, err := d.o.Dir.OpenRankOutput(attempt, name); err == nil {
					all = append(all, scanEnd(f, 0)...)
					f.Close()
				}
			}
		}
	}
	var best *symptoms.Found
	named := launch.RankOfFailure(result.Failure) >= 0
	for i := range all {
		if named && all[i].IsAftermath() { // the launcher has already named the failed rank
			continue
		}
		if best == nil || best.IsConsequence() && !all[i].IsConsequence() {
			best = &all[i]
		}
	}
	if best == nil {
		return nil
	}
	return &outcome.Finding{Name: best.Name, Cause: best.Cause, Hint: best.Hint, Consequence: best.IsConsequence()}
}

// newestOutput returns the newest attempt with output of ranks, or 0.
func newestOutput(dir rundir.Dir) (attempt int) {
	if attempts, err := dir.OutputAttempts(); err == nil && len(attempts) > 0 {
		attempt = attempts[len(attempts)-1]
	}
	return attempt
}

// scanEnd returns the known failures in the text from start, but at most in the last maxDiagnosis
// bytes of a file, likely causes first. If the file is shorter than start, it was rewritten.
func scanEnd(f *os.File, start int64) []symptoms.Found {
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	start = max(start, info.Size()-maxDiagnosis)
	if start > info.Size() {
		start = 0
	}
	found, _, _ := symptoms.Scan(io.NewSectionReader(f, start, info.Size()-start))
	return found
}
