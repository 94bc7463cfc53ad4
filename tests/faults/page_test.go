package faults

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite docs/faults.md")

const page = "../../docs/faults.md"

const above = `# Faults

This page is for users and staff who want to know what happens to a run when something fails. Each row is a tested failure. If your run has failed, start at [running.md](running.md#if-something-goes-wrong). [hangs.md](hangs.md#hangs-and-lost-ranks) describes the timeouts.

| Column | Meaning |
|---|---|
| Within | Upper limit for the time from the fault to the end of the last process, on a busy machine. Empty if a setting or Slurm determines the time |
| Exit code | [Exit code](running.md#exit-codes) of the run. Empty if the test covers only a part of the program; "-" if the run continues |
| Message | Part of the output. "..." stands for any text, such as a rank's host and step |
| Tested by | A test of ` + "`tests/faults`" + `, with real processes, or the named tests as ` + "`directory: Test`" + `. Tests in ` + "`tests`" + ` run on a real Slurm cluster; tests in other directories test a part of the program |
`

const below = `
## Many faults
` + "`make soak`" + ` is a test that disturbs a run with 200 random faults (` + "`FAULTS`, `SEED`" + `). At the end, the weights must be bit-identical to those of an undisturbed run, and the metrics must contain each step exactly once. ` + "`make test`" + ` does the same with 20 faults.

| Run | Faults | Result in November 2026 with 200 faults, on two busy cores |
|---|---|---|
| Two ranks on one machine, without Slurm | Ranks are killed, crash, or freeze; the launcher is killed and restarted; stops; corrupt checkpoints; suspensions; hostile connections while ranks join | 9 minutes, 34,394 steps, identical weights (seed 1) |
| Two nodes of the test cluster | Ranks are killed, crash, or freeze; the job is suspended, canceled, and submitted again; the launcher is killed; a link is down for a second; slurmctld restarts | 19 minutes, about 65,000 steps, identical weights (seed 7) |

## Cost of hostile connections
After all ranks have joined, neither the launcher nor a fully connected rank listens. The kernel rejects new connections, at no cost for the run. In runs with many ranks, a rank still listens for ranks to which it has not connected yet. In this case, an unauthenticated connection took 32 µs of CPU time (user and system time of the listening rank, mean of 10,000 connections): 10,000 connections cost one rank a third of a second.

## Not covered
- Faults of GPUs have been tested on a simulator only. [gpu.md](gpu.md#errors) lists them.
- NCCL's own data connections between GPUs are neither authenticated nor encrypted, by NCCL's design.
`

func (r row) line() string {
	within, exit, message, shown := "", "", "", "`tests/faults`"
	if r.within > 0 {
		within = fmt.Sprintf("%.0f s", r.within.Seconds())
	}
	switch r.exit {
	case noExit:
		exit = "-"
	case exitNotChecked:
	default:
		exit = fmt.Sprint(r.exit)
	}
	if r.message != "" {
		message = "`" + strings.ReplaceAll(r.message, "...", " ... ") + "`"
		message = strings.Join(strings.Fields(message), " ")
	}
	if r.shown != "" {
		shown = "`" + strings.ReplaceAll(r.shown, ", ", "`, `") + "`"
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s |\n", r.fault, r.happens, within, exit, message, shown)
}

// TestPage checks that docs/faults.md matches the rows.
func TestPage(t *testing.T) {
	var b strings.Builder
	b.WriteString(above)
	for _, g := range matrix {
		fmt.Fprintf(&b, "\n## %s\n| Fault | Result | Within | Exit code | Message | Tested by |\n|---|---|---|---|---|---|\n", g.title)
		for _, r := range g.rows {
			b.WriteString(r.line())
		}
	}
	b.WriteString(below)
	if *update {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	now, err := os.ReadFile(page)
	if err != nil || string(now) != b.String() {
		t.Errorf("%s is not what the rows say (%v); go generate ./tests/faults rewrites it", page, err)
	}
}
