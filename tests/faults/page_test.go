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

What becomes of a run when something fails. The tests write this page (` + "`go generate ./tests/faults`" + `): each row is a test of ` + "`tests/faults`" + `, with real processes of the program, which fails when the row is not true, or names the tests that show it as ` + "`folder: Test`" + `. Of these it is held that ` + "`go test`" + ` runs them and that the message is among the texts of the test itself, of what it calls or of its golden files; what follows from the fault, they say themselves. Those in ` + "`tests`" + ` run on a real Slurm cluster, those in other folders test a part of the program. "Within" is an upper limit for a machine that is busy with other things, from the fault to the end of the last process; none is given where a setting of the job, which the row names, or Slurm says how long it takes. "..." in a message stands for anything, as a rank's host and step. Without an exit code the test is of a part of the program; "-" is a run that goes on. [Exit codes](running.md#exit-codes).
`

const below = `
## Many of them
` + "`make soak`" + ` has a training of two ranks on this machine, without Slurm, suffer 200 faults, in an order that a seed gives (` + "`FAULTS`, `SEED`" + `): ranks that are killed, crash or freeze, a launcher that is killed and started again, stops, damaged checkpoints, suspensions, hostile connections while ranks join. At the end the weights must be those of an undisturbed training, bit for bit, and the figures those of each step once. ` + "`make test`" + ` does it with 20. With 200 and the seed 1, in November 2026 on two busy cores, it took nine minutes and 34,394 steps, and ended with the same weights.

Then it does the same to a training on two nodes of the test cluster: ranks that are killed, crash or freeze, a job that is suspended, cancelled and submitted again, a launcher that is killed, a link that is down for a second, a slurmctld that is started again. ` + "`make test`" + ` does that with 20, too. With 200 and the seed 7, in November 2026 beside other work on two cores, it took nineteen minutes and some 65,000 steps, and ended with the same weights.

## What strangers cost
Once all ranks have joined, the launcher listens no more, and a rank that is connected to all others neither: as on one machine, a stranger is then refused by the kernel, and the run does nothing for it. In larger worlds a rank goes on listening for those it has not needed yet. There a connection that is made, says something else than a rank and is dropped took 32 µs of the processor (user and system time of the rank that takes them, 10,000 of them from another process, on the machine of the tests): 10,000 are a third of a second of one rank, 1% of a run of half a minute.

## Not shown
- NCCL's own data connections between GPUs are neither authenticated nor encrypted, by NCCL's design.
`

func (r row) line() string {
	within, exit, message, shown := "", "", "", "`tests/faults`"
	if r.within > 0 {
		within = fmt.Sprintf("%.0f s", r.within.Seconds())
	}
	switch r.exit {
	case goesOn:
		exit = "-"
	case unsaid:
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

// TestPage: docs/faults.md is what the rows say.
func TestPage(t *testing.T) {
	var b strings.Builder
	b.WriteString(above)
	for _, g := range matrix {
		fmt.Fprintf(&b, "\n## %s\n| fault | what happens | within | exit code | message | shown by |\n|---|---|---|---|---|---|\n", g.title)
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
