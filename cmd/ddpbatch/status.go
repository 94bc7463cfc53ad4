package main

import (
	"context"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/runs"
	"github.com/ddpbatch/ddpbatch/jobs/watch"
	"github.com/ddpbatch/ddpbatch/jobs/watch/screen"
)

type statusCmd struct {
	Which  []string `arg:"" optional:"" name:"run" help:"Run names, run directories, job files, or job IDs (default: all runs below runs/)."`
	JSON   bool     `help:"Print the answer as JSON."`
	Verify bool     `help:"Read the newest checkpoint of each run completely, and verify its digests. Without names, only your own runs."`
}

func (c *statusCmd) Help() string {
	phases := make([]string, len(watch.Phases))
	for i, p := range watch.Phases {
		phases[i] = string(p)
	}
	text := `Prints the details of a single run, or a table of several runs. "ddpbatch top" keeps the table up to date. The phases are: ` + strings.Join(phases, ", ") + "."
	return strings.Join(screen.Wrap(text, helpWidth, 0), "\n")
}

// helpWidth is the line width of help texts that contain generated lists.
const helpWidth = 87

func (c *statusCmd) Run(ctx context.Context, p *program) error {
	found, unreadable, err := c.runs(p)
	if err != nil {
		return err
	}
	// Show the state in the run directories even if Slurm does not respond.
	poller := p.runStore().NewPoller()
	poller.Unlimited = len(c.Which) > 0
	all, pollErr := poller.Poll(ctx, found)
	if all == nil && pollErr != nil {
		return pollErr
	}
	if c.Verify {
		isNamed := len(c.Which) > 0
		if skipped := verifyAll(ctx, all, isNamed); skipped > 0 {
			p.note("did not read the checkpoint of %s of other users; name a run to verify it", format.Count(skipped, "run"))
		}
	}
	if len(c.Which) > 0 {
		for i := range all {
			all[i].AddUsage(rundir.Dir{Path: all[i].Dir})
			all[i].AddComponents(rundir.Dir{Path: all[i].Dir})
		}
	}
	if c.JSON {
		if err := p.printJSON(all); err != nil {
			return err
		}
		return pollErr
	}
	switch {
	case len(all) == 0:
		p.note("%s", noRuns(p.runStore().Runs(), unreadable))
		if unreadable == 0 {
			p.note("hint: name a run directory, or run this in the directory where you submitted the job")
		}
		return nil
	case len(c.Which) == 1 && all[0].Elements != nil:
		p.showRuns(all[0].Elements) // the user named this sweep
	case len(c.Which) == 1:
		p.showRun(all[0])
	default:
		p.showRuns(all)
	}
	return pollErr
}

// verifyAll verifies the newest checkpoints of the runs. Unless the user named the runs, it skips and
// counts the checkpoints of other users, which can be sparse files of any size.
func verifyAll(ctx context.Context, all []watch.Status, isNamed bool) (skipped int) {
	for i := range all {
		s := &all[i]
		if isNamed || runs.IsOwn(s.Dir) {
			s.Verify(ctx)
			skipped += verifyAll(ctx, s.Elements, isNamed)
		} else if s.Saved != nil || len(s.Elements) > 0 {
			skipped++
		}
	}
	return skipped
}

// labelWidth is the column in which the text after a label starts.
const labelWidth = 12

// showRun prints the status of a single run in full.
func (p *program) showRun(s watch.Status) {
	s.Dir = p.short(s.Dir)
	if s.Phase == watch.Failed && s.Advice == "" && s.Job != "" && s.Finding == nil {
		s.Advice = "failures known in its log: ddpbatch doctor --log " + shellQuote(s.Dir)
	}
	for _, l := range s.Details(time.Now()) {
		if l.Verbatim {
			p.printf("%-*s%s\n", labelWidth, l.Label, l.Text)
			continue
		}
		p.wrapf(labelWidth, "%-*s%s", labelWidth, l.Label, l.Text)
	}
}

func (p *program) showRuns(all []watch.Status) {
	p.printTable(watch.StatusTable(all))
}

// runs returns the runs that the arguments name, and the number of runs that are not readable.
func (c *statusCmd) runs(p *program) (found []runs.Run, unreadable int, err error) {
	if len(c.Which) == 0 {
		return p.listRuns(p.runStore().Runs())
	}
	for _, arg := range c.Which {
		r, err := p.findRun(arg)
		if err != nil {
			return nil, 0, err
		}
		found = append(found, r)
	}
	return found, 0, nil
}
