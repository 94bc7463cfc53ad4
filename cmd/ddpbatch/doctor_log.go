package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
	"github.com/ddpbatch/ddpbatch/jobs/doctor/symptoms"
	"github.com/ddpbatch/ddpbatch/jobs/rankoutput"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/runs"
)

// symptomJSON is a failure in the output of --log --json.
type symptomJSON struct {
	Name        string `json:"name"`
	From        string `json:"from"` // component that printed Text
	Lines       []int  `json:"lines"`
	Count       int    `json:"count"`
	Text        string `json:"text"`
	Cause       string `json:"cause"`
	Hint        string `json:"hint"`
	Consequence bool   `json:"consequence"`    // whether it is a consequence of a failure elsewhere, not a cause
	Rank        *int   `json:"rank,omitempty"` // whose output has Lines; absent if they are in the log
}

// log searches a log for known failures.
func (c *doctorCmd) log(p *program) error {
	from := io.Reader(p.Stdin)
	var run *runs.Run
	if c.Log != "-" {
		var open func() (*os.File, error)
		var err error
		open, run, err = c.logFile(p)
		if err != nil {
			return exitError{exitUsage, err}
		}
		f, err := open()
		if errors.Is(err, fs.ErrNotExist) {
			err = hints.Add(err, "a job that never started has no log: run `ddpbatch status "+shellQuote(c.Log)+"`")
		}
		if err != nil {
			return exitError{exitUsage, err}
		}
		defer f.Close()
		from = f
	}
	found, lines, err := symptoms.Scan(from)
	if err != nil {
		return fmt.Errorf("read log %q: %w", c.Log, err)
	}
	if run != nil {
		found = symptoms.Merge(found, rankoutput.Symptoms(*run))
	}
	if c.JSON {
		answer := []symptomJSON{}
		for _, f := range found {
			answer = append(answer, symptomJSON{f.Name, f.From, f.Lines, f.Count, f.Text, f.Cause, f.Hint, f.IsConsequence(), f.Rank})
		}
		if err := p.printJSON(answer); err != nil {
			return err
		}
	} else {
		p.printSymptoms(found)
	}
	if len(found) == 0 {
		p.note("no known failure in %s", format.Count(lines, "line"))
		return nil
	}
	return exitError{exitFailed, nil}
}

// logFile returns a function that opens the file in --log, or the newest output of the run in
// --log. A file can be a symbolic link, or a pipe of this user. Run is nil for a file.
func (c *doctorCmd) logFile(p *program) (open func() (*os.File, error), run *runs.Run, err error) {
	path := p.abs(c.Log)
	info, missing := os.Stat(path)
	// Another user may be able to create a file with the name of the user's run.
	if _, isRun, _ := p.runStore().FindOwn(c.Log); !isRun && missing == nil && !info.IsDir() {
		return func() (*os.File, error) { return safefile.OpenNamed(path) }, nil, nil
	}
	named, err := p.findRun(c.Log)
	switch {
	case err != nil && missing != nil:
		return nil, nil, hints.Add(missing, "--log takes a file, or a run: `ddpbatch status` lists the runs below "+runs.DefaultDir+"/")
	case err != nil:
		return nil, nil, err
	case named.IsSweep():
		return nil, nil, hints.Add(fmt.Errorf("%q is a sweep: each trial has its log", c.Log), "name one: "+shellQuote(c.Log+"/0"))
	}
	path, err = named.OutputPath()
	return func() (*os.File, error) { return rundir.OpenFile(path) }, &named, err
}

func (p *program) printSymptoms(found []symptoms.Found) {
	for i, f := range found {
		if i > 0 {
			p.printf("\n")
		}
		kind := ""
		if f.IsConsequence() {
			kind = "; a consequence of another failure"
		}
		p.wrapf(2, "%s (%s), %s%s", f.Name, f.From, f.Where(), kind)
		p.wrapf(4, "  %s", f.Text)
		p.wrapf(4, "  it means: %s", f.Cause)
		p.wrapf(4, "  what to do: %s", f.Hint)
	}
	if len(found) > 0 && found[0].IsConsequence() {
		p.note("none of these is a cause: look in the logs of the other ranks, and before line %d", found[0].Lines[0])
	}
}
