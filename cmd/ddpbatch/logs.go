package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/lines"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/runs"
	"github.com/ddpbatch/ddpbatch/jobs/watch"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// logPoll is the interval between checks of a log for new lines.
const logPoll = 250 * time.Millisecond

type logsCmd struct {
	Which     string `arg:"" name:"run" help:"Run name, run directory, job file, or job ID; also a sweep or one of its trials."`
	Follow    bool   `short:"f" help:"Continue until the job or the local launch has ended."`
	Plain     bool   `help:"Disable the live view of -f on a terminal."`
	Rank      *int   `placeholder:"N" help:"Print the output of rank N of a [command] job. For the built-in trainer, print the rank's log in JSON lines."`
	Node      string `placeholder:"NAME" help:"Print the output of the ranks on a node of a [command] job."`
	Component string `placeholder:"NAME" help:"Print the output of a component."`
	Failed    bool   `help:"Print the output of the rank that ended first and so caused the failure."`
	Grep      string `placeholder:"PATTERN" help:"Print only lines that match a regular expression (RE2). If the log lacks the output of some ranks, search the output of all ranks."`

	Attempt int  `placeholder:"N" help:"Print the output of the ranks in attempt N, counted from 1 (default: the newest attempt)."`
	Events  bool `help:"With --rank, print the rank's log in JSON lines, also for a [command] job."`

	all bool // print the output of all ranks
}

func (c *logsCmd) Help() string {
	return `All ranks write to a single log. If Slurm requeues the job, the log continues in the
same file. Each launch without Slurm writes a separate log, launch-TIME.out. The command
prints the newest one. For a sweep, each line starts with the index of its trial.

For a [command] job, the run directory also has the output of each rank in the newest
attempts. --rank, --node, --failed, and --attempt select it. --component prints the
output of a component, which the log does not contain. With -f, these flags follow only
the first part of a file that exceeds command.output_limit.

With -f on a terminal, a live view below the log shows the status of the run.`
}

func (c *logsCmd) Run(ctx context.Context, p *program) error {
	store := p.runStore()
	run, err := store.FindWithJob(ctx, c.Which)
	if err != nil {
		return err
	}
	switch {
	case c.Rank != nil && *c.Rank < 0:
		return usage("--rank must be 0 or more")
	case c.Attempt < 0:
		return usage("--attempt must be 1 or more")
	case c.Events && c.Rank == nil:
		return usage("--events requires --rank")
	case btoi(c.Rank != nil)+btoi(c.Node != "")+btoi(c.Failed)+btoi(c.Component != "") > 1:
		return usage("give one of --rank, --node, --component, and --failed")
	case run.IsSweep() && (c.Node != "" || c.Failed || c.Component != "" || c.Attempt > 0):
		return usage("--node, --component, --failed, and --attempt require a single run: name a trial of the sweep, such as " + shellQuote(c.Which+"/0"))
	}
	if c.Grep == "" {
		return c.print(ctx, p, store, run)
	}
	pattern, err := regexp.Compile(c.Grep)
	if err != nil {
		return usage(fmt.Sprintf("--grep: %v", err))
	}
	filtered := *p
	filter := &lines.Filter{W: p.Stdout, Pattern: pattern}
	filtered.Stdout = filter
	c.Plain = true
	if c.logLacksRanks(run) {
		c.all = true
	}
	err = c.print(ctx, &filtered, store, run)
	return errors.Join(err, filter.Flush())
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// logLacksRanks reports whether command.output excludes ranks from the log of a run.
func (c *logsCmd) logLacksRanks(run runs.Run) bool {
	text, err := run.Dir.ReadSpec()
	var job struct{ Command *struct{ Output string } }
	if err != nil || jobs.DecodeSome(text, &job) != nil || job.Command == nil {
		return false
	}
	mode := jobs.Output(job.Command.Output)
	return mode == jobs.OutputPerRank || mode == jobs.OutputRank0
}

// print prints the selected log of a run.
func (c *logsCmd) print(ctx context.Context, p *program, store *runs.Store, run runs.Run) error {
	if run.IsSweep() {
		return c.sweep(ctx, p, store, run)
	}
	if done, err := c.rankLogs(ctx, p, store, run); done {
		return err
	}
	log, err := c.log(run, "")
	if err != nil {
		return err
	}
	if !c.Follow {
		if err := c.checkRankLog(run); err != nil {
			return err
		}
		return p.printLogs(false, log)
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	var now atomic.Pointer[slurm.JobState]
	if !c.Plain {
		metrics := watch.NewMetricsTail(run.Dir.Metrics())
		defer p.startLive(func() watch.Status {
			s := runs.ReadStatus(run, metrics)
			if job := now.Load(); job != nil {
				s.AddJob(*job)
			}
			s.SetPhase(time.Now())
			return s
		}).stop()
	}
	err = p.follow(ctx, []*lines.Tail{log}, p.waitForEnd(store, &now, run))
	if run.Record.LastJob() == "" && !run.IsLaunched() {
		return err // ranks without a launcher cannot be canceled from here
	}
	return p.explainInterrupt(run, err)
}

// log returns the log of the run, or the log of the rank in --rank.
func (c *logsCmd) log(run runs.Run, prefix string) (*lines.Tail, error) {
	if c.Rank != nil {
		return &lines.Tail{Open: func() (*os.File, error) { return run.Dir.OpenRankLog(*c.Rank) }, Prefix: prefix}, nil
	}
	path, err := run.OutputPath()
	return &lines.Tail{Open: func() (*os.File, error) { return rundir.OpenFile(path) }, Prefix: prefix}, err
}

// checkRankLog returns a usage error if --rank names a rank without a log and other ranks have logs.
func (c *logsCmd) checkRankLog(run runs.Run) error {
	if c.Rank == nil {
		return nil
	}
	path := run.Dir.RankLog(*c.Rank)
	logs, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil // printLogs reports the error
	}
	var ranks []string
	for _, l := range logs {
		if strings.HasPrefix(l.Name(), "rank-") {
			ranks = append(ranks, l.Name())
		}
	}
	if len(ranks) == 0 || slices.Contains(ranks, filepath.Base(path)) {
		return nil
	}
	return usage(fmt.Sprintf("rank %d has no log: %s has %s to %s", *c.Rank, filepath.Dir(path), ranks[0], ranks[len(ranks)-1]))
}

// sweep prints the logs of all trials that have started.
func (c *logsCmd) sweep(ctx context.Context, p *program, store *runs.Store, run runs.Run) error {
	trials, err := run.Trials()
	if err != nil {
		return err
	}
	var logs []*lines.Tail
	var started []runs.Run
	for i, trial := range trials {
		if log, err := c.log(trial, fmt.Sprintf("[%d] ", i)); err == nil && (trial.Record.LastJob() != "" || trial.IsLaunched()) {
			logs, started = append(logs, log), append(started, trial)
		}
	}
	if len(logs) == 0 {
		return noTrialStarted(run)
	}
	if !c.Follow {
		return p.printLogs(false, logs...)
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	return p.explainInterrupt(run, p.follow(ctx, logs, p.waitForEnd(store, new(atomic.Pointer[slurm.JobState]), started...)))
}

// waitForEnd returns a function that waits until the runs end and prints state changes that
// their logs do not show: pending jobs, and the final state. The function stores the state of
// the first job in first. The result is nil if no run has a job or a launcher, because then the
// end of the runs cannot be detected.
func (p *program) waitForEnd(store *runs.Store, first *atomic.Pointer[slurm.JobState], all ...runs.Run) func(context.Context) error {
	submitted, launched := runs.SplitByStart(all)
	if len(submitted)+len(launched) == 0 {
		return nil
	}
	last := ""
	onJobs := func(states []slurm.JobState) {
		job := states[0]
		first.Store(&job)
		text := runs.CountStates(states)
		if len(states) == 1 {
			text = fmt.Sprintf("job %s is %s", job.ID, job)
			if job.State != slurm.StatePending {
				return // the log of a running job shows its progress
			}
		}
		if text != last {
			p.note("%s", text)
			last = text
		}
	}
	return func(ctx context.Context) error {
		ended, err := store.Wait(ctx, all, onJobs)
		if err != nil {
			return err
		}
		for _, e := range ended {
			switch {
			case e.Launch != nil:
				p.note("run %s %s", e.Run.Record.Name, e.Launch)
			case len(submitted) == 1:
				p.note("job %s is %s", e.Job.ID, e.Job)
			}
		}
		return nil
	}
}

// printLogs copies the current contents of the logs. It returns an error only if no log
// exists, because some logs can start later. If over is set, the jobs have ended.
func (p *program) printLogs(over bool, logs ...*lines.Tail) error {
	var missing error
	found := false
	for _, log := range logs {
		err := log.Copy(p.Stdout)
		switch {
		case err == nil:
			found = true
		case errors.Is(err, fs.ErrNotExist):
			missing = err
		default:
			return err
		}
		_ = log.End(p.Stdout) // p.Stdout records failed writes
	}
	const own = "Run `ddpbatch logs --rank 0` to see the log of rank 0"
	switch {
	case found:
		return nil
	case over:
		return hints.Add(fmt.Errorf("there is no log: %w", missing), "run `ddpbatch status` to see how the job ended; a job that never started has no log. "+own)
	}
	return hints.Add(fmt.Errorf("there is no log yet: %w", missing), "run `ddpbatch status` to see the state of the job, or add -f to wait for the log. "+own)
}

// follow copies the logs until the function until returns. If until is nil, it copies them until ctx
// is done. After a requeue, the job appends to the same log, even on other nodes.
func (p *program) follow(ctx context.Context, logs []*lines.Tail, until func(context.Context) error) error {
	over := make(chan error, 1)
	if until != nil {
		ctx, stop := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			over <- until(ctx)
		}()
		defer func() { stop(); <-done }() // wait, because until prints to the view of the caller
	}
	for {
		for _, log := range logs {
			if err := log.Copy(p.Stdout); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		select {
		case err := <-over:
			if err != nil {
				return err
			}
			// Copy lines that were printed since the last poll.
			return p.printLogs(true, logs...)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(logPoll):
		}
	}
}
