package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// interruptible returns a context that is canceled on SIGINT or SIGTERM. Commands that wait
// use it. A second signal immediately terminates the process.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		select {
		case s := <-signals:
			signal.Stop(signals)
			cancel(interrupted{s})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}

// interrupted is the error of a command that a signal stopped.
type interrupted struct{ os.Signal }

func (i interrupted) Error() string { return "stopped by signal " + i.String() }
func (interrupted) ExitCode() int   { return exitCancelled }

// goesOn adds a hint to the error of an interrupted command: the run itself continues.
func (p *program) goesOn(run knownRun, err error) error {
	var by interrupted
	if !errors.As(err, &by) {
		return err
	}
	what := "job"
	if run.isLaunched() {
		what = "run"
	}
	return hints.Add(err, "the "+what+" continues; to cancel it, run `ddpbatch cancel "+shellQuote(p.short(run.dir.Path))+"`")
}
