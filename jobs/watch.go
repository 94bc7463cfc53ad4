package jobs

import (
	"path"
	"strings"
	"time"
)

// Watch describes when the user's program hangs, and the reaction.
type Watch struct {
	Silence       Duration    `toml:"silence" auto:"not checked" help:"Maximum time without output of the ranks."`
	Progress      Duration    `toml:"progress" auto:"not checked" help:"Maximum time without a higher step, as command.progress reads it."`
	Heartbeat     Duration    `toml:"heartbeat" auto:"not checked" help:"Maximum time since a rank last changed the file that DDPBATCH_HEARTBEAT names. Ranks that have never changed it are not checked."`
	File          Text        `toml:"file" help:"File that the program must change, or a pattern. Relative paths start at workdir. May contain {run_dir}, {run_id}, and {checkpoint_dir}."`
	FileTimeout   Duration    `toml:"file_timeout" auto:"not checked" help:"Maximum time without a change of file."`
	Startup       Duration    `toml:"startup" auto:"none" help:"Time after all ranks have joined in which no limit applies."`
	PausePatterns []Text      `toml:"pause_patterns" help:"Regular expressions for lines of output that begin an allowed pause, such as a checkpoint or an evaluation. The next other line ends it."`
	Pause         Duration    `toml:"pause" default:"1h" help:"Maximum duration of such a pause."`
	Action        WatchAction `toml:"action" default:"report" enum:"report,restart,end" help:"Reaction: a warning with the evidence; or the evidence and then a restart, which counts for restart.max_without_progress; or the evidence and then the end of the run."`
}

// A WatchAction is the reaction to a program that hangs.
type WatchAction string

// Values of [Watch.Action].
const (
	WatchReport  WatchAction = "report"
	WatchRestart WatchAction = "restart"
	WatchEnd     WatchAction = "end"
)

// IsSet reports whether the watch has a limit.
func (w Watch) IsSet() bool {
	return w.Silence > 0 || w.Progress > 0 || w.Heartbeat > 0 || w.FileTimeout > 0
}

// minHangTimeout is the minimum of a limit: several checks of the launcher.
const minHangTimeout = 10 * time.Second

func (d *decoder) checkWatch(j *Job) {
	const table = "command.watch"
	if !d.given[table] || d.invalid[table] {
		return
	}
	w := &j.Command.Watch
	limits := map[string]Duration{"silence": w.Silence, "progress": w.Progress, "heartbeat": w.Heartbeat, "file_timeout": w.FileTimeout}
	invalid := false
	for name, limit := range limits {
		key := table + "." + name
		invalid = invalid || d.invalid[key]
		if d.isValid(key) && time.Duration(limit) < minHangTimeout {
			d.report(key, "to disable the check, remove the key", "must be at least %s", minHangTimeout)
			invalid = true
		}
	}
	const file, timeout, patterns = table + ".file", table + ".file_timeout", table + ".pause_patterns"
	switch {
	case d.given[file] && !d.given[timeout]:
		d.report(file, `add file_timeout = "30m"`, "has no effect without file_timeout")
		invalid = true
	case d.given[timeout] && !d.given[file]:
		d.report(timeout, "set command.watch.file", "has no effect without file")
	}
	if d.isValid(file) {
		if _, err := path.Match(string(w.File), ""); err != nil || w.File == "" {
			d.report(file, "", "%q is not a valid path or pattern", w.File)
		} else if strings.HasPrefix(string(w.File), "~") {
			d.report(file, "write the absolute path", `"~" is not expanded`)
		}
	}
	for i, pattern := range w.PausePatterns {
		if _, invalid := parsePattern(string(pattern)); invalid != "" && d.isValid(patterns) {
			d.reportElementAllowed(patterns, i, invalid, "the syntax is RE2")
		}
	}
	if !w.IsSet() && !invalid {
		d.report(table, `for example: silence = "30m"`, "has no limit")
	}
	// With spare_nodes or min_nodes, the default of max_without_progress allows restarts, and
	// checkRestart rejects 0.
	invalid = d.invalid["restart.max_without_progress"] || d.invalid["restart.spare_nodes"] || d.invalid["restart.min_nodes"]
	if w.Action == WatchRestart && j.Restart.MaxWithoutProgress == 0 && !j.Restart.SurvivesNodeLoss() && !invalid {
		d.report(table+".action", "set restart.max_without_progress = 2", "no restart is allowed")
	}
}
