package main

import (
	"fmt"
	"path/filepath"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs/runs"
)

// runStore returns the runs that the user can name in the current directory.
func (p *program) runStore() *runs.Store {
	p.dirNeeded = p.dirNeeded || p.Dir == ""
	return &runs.Store{Dir: p.Dir, Slurm: p.slurm(), Note: func(text string) { p.note("%s", text) }}
}

// findRun returns the run that arg names; see [runs.Store.Find].
func (p *program) findRun(arg string) (runs.Run, error) { return p.runStore().Find(arg) }

// listRuns returns the runs in a directory. It prints a note for each run that it cannot read,
// and returns the number of such runs.
func (p *program) listRuns(dir string) (found []runs.Run, unreadable int, err error) {
	found, errs, err := p.runStore().List(dir)
	p.noteUnreadable(errs)
	return found, len(errs), err
}

// noteUnreadable prints the errors of runs that a list omits.
func (p *program) noteUnreadable(errs []error) {
	for _, err := range errs {
		p.note("%v", err)
		if hint := hints.Of(err); hint != "" {
			p.note("hint: %s", hint)
		}
	}
}

// noRuns returns the message that the directories contain no runs, or no readable ones.
func noRuns(dirs string, unreadable int) string {
	if unreadable > 0 {
		return fmt.Sprintf("no run below %s can be read", dirs)
	}
	return "there are no runs below " + dirs
}

// resultError returns the error for a run that ended before it finished. It returns nil if the
// run has finished.
func (p *program) resultError(e runs.Ended) error {
	r := e.Result()
	if r.Finished {
		return nil
	}
	path := shellQuote(p.short(e.Run.Dir.Path))
	hint := "to see the output, run `ddpbatch logs " + path + "`"
	if !r.Canceled {
		hint += "; to search it for known failures, run `ddpbatch doctor --log " + path + "`"
	}
	if r.Advice != "" {
		hint = r.Advice + "; " + hint
	}
	if r.SavedStep >= 0 {
		command := "submit"
		if e.Launch != nil {
			command = "launch"
		}
		hint = fmt.Sprintf("step %d is saved: %s the run again to resume; %s", r.SavedStep, command, hint)
	}
	return exitError{r.ExitCode, hints.Errorf(hint, "%s", r.Text)}
}

// short returns path relative to the current directory if it is below it, and unchanged
// otherwise.
func (p *program) short(path string) string {
	if rel, err := filepath.Rel(p.Dir, path); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return path
}
