package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/ddpbatch/ddpbatch/slurm"
)

// logPoll is how often a log is looked at for more.
const logPoll = 250 * time.Millisecond

type logsCmd struct {
	Which  string `arg:"" name:"run" help:"Run directory, job file or job id."`
	Follow bool   `short:"f" help:"Go on until the job is done."`
	Rank   *int   `placeholder:"N" help:"The log of rank N, in JSON lines, instead of what the job printed."`
}

func (c *logsCmd) Run(ctx context.Context, p *program) error {
	run, err := p.findRun(c.Which)
	if err != nil {
		return err
	}
	var path string
	id, err := run.job()
	switch {
	case c.Rank != nil && *c.Rank < 0:
		return usage("--rank must be 0 or more")
	case c.Rank != nil:
		path = run.dir.RankLog(*c.Rank)
	case err != nil:
		return hinted{err, "a job that ran here printed to its terminal; --rank 0 shows the log of rank 0"}
	default:
		path = run.dir.BatchLog(id)
	}
	log := &tail{path: path}
	if !c.Follow {
		return p.printLog(log)
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	return p.follow(ctx, log, id)
}

func (p *program) printLog(log *tail) error {
	err := log.copy(p.Stdout)
	if errors.Is(err, fs.ErrNotExist) {
		return hinted{fmt.Errorf("there is no log yet: %w", err), "`ddpbatch status` says whether the job has started; -f waits for it"}
	}
	return err
}

// follow copies the log until the job is done, or for a run without a job until
// it is interrupted.
func (p *program) follow(ctx context.Context, log *tail, id string) error {
	over := make(chan error, 1)
	if id != "" {
		go func() {
			last := ""
			s, err := p.slurm().Wait(ctx, id, func(s slurm.JobState) {
				// The log itself shows what a running job does.
				if text := stateText(s); s.State == slurm.StatePending && text != last {
					p.note("job %s is %s", id, text)
					last = text
				}
			})
			if err == nil {
				p.note("job %s is %s", id, stateText(s))
			}
			over <- err
		}()
	}
	for {
		if err := log.copy(p.Stdout); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		select {
		case err := <-over:
			if err != nil {
				return err
			}
			// What was printed between the last look and the end.
			return p.printLog(log)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(logPoll):
		}
	}
}

// tail is a file that grows.
type tail struct {
	path string
	at   int64 // what has been copied
}

// copy copies what has come since the last time. A file that got shorter was
// begun anew, and is copied from its start.
func (t *tail) copy(w io.Writer) error {
	f, err := os.Open(t.path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() < t.at {
		t.at = 0
	}
	if _, err := f.Seek(t.at, io.SeekStart); err != nil {
		return err
	}
	n, err := io.Copy(w, f)
	t.at += n
	return err
}
