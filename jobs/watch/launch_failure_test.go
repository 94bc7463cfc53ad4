package watch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
)

// TestLaunchFailure checks the reason if the batch script fails before a rank starts.
func TestLaunchFailure(t *testing.T) {
	const log = "first\nslurm_script: line 9: module: command not found\n"
	for name, c := range map[string]struct {
		log, exit   string
		attempt     string // job of a recorded attempt
		end         string // job of the recorded exit code
		why, advice string // expected substrings
		none        bool
	}{
		"a line of the script fails": {log: log, exit: "127:0", why: "before any rank was started: slurm_script: line 9: module: command not found"},
		"a launcher of another job":  {log: log, exit: "1:0", attempt: "17", end: "17", why: "command not found"},
		"it began":                   {log: log, exit: "1:0", attempt: "18", none: true},
		"it ended by itself":         {log: log, exit: "1:0", end: "18", none: true},
		"hints are no cause":         {log: "ddpbatch: error: no job file\nddpbatch: hint: look there\n\n", exit: "1:0", why: "ddpbatch: error: no job file"},
		"ddpbatch is away":           {log: "slurm_script: line 12: /home/ada/bin/ddpbatch: No such file or directory\n", exit: "127:0", why: "No such file", advice: "check that the node sees the program"},
		"nothing was printed":        {exit: "1:0", why: "before any rank was started"},
		"the log cannot be opened":   {exit: "0:53", why: "could not begin", advice: "by this path"},
		"no end, and control signs":  {log: "x\n" + strings.Repeat("ö", 999) + "\x1b[31m", exit: "1:0", why: "ö ..."},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := rundir.Create(filepath.Join(t.TempDir(), "run"))
			if err != nil {
				t.Fatal(err)
			}
			if c.log != "" {
				if err := os.WriteFile(d.BatchLog("18"), []byte(c.log), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if c.attempt != "" {
				if err := d.AppendAttempt(rundir.AttemptEvent{Event: rundir.AttemptBegan, JobID: c.attempt}); err != nil {
					t.Fatal(err)
				}
			}
			if c.end != "" {
				if err := d.WriteEnd(rundir.End{JobID: c.end, Exit: 1}); err != nil {
					t.Fatal(err)
				}
			}
			why, advice := LaunchFailure(d, outcome.Read(d, "18"), c.exit)
			if !strings.Contains(why, c.why) || !strings.Contains(advice, c.advice) || c.advice == "" && advice != "" {
				t.Errorf("%q, %q", why, advice)
			}
			if c.none != (why == "") || len(why) > 400 || strings.ContainsRune(why, '\x1b') {
				t.Errorf("%q", why)
			}
		})
	}
}
