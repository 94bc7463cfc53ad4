package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// interruptible is a context that ends at Ctrl-C, or when this process is asked
// to end. Commands that wait for something use it; a second Ctrl-C ends the
// process at once.
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

// interrupted is the end of a command by a signal.
type interrupted struct{ os.Signal }

func (i interrupted) Error() string { return "stopped by signal " + i.String() }
func (interrupted) ExitCode() int   { return exitCancelled }

// goesOn says of an interrupted look at a run that its job has not ended by it.
func (p *program) goesOn(run knownRun, err error) error {
	var by interrupted
	if !errors.As(err, &by) {
		return err
	}
	what := "job"
	if run.isLaunched() {
		what = "run"
	}
	return hints.Add(err, "only this command has ended: the "+what+" goes on, and ddpbatch cancel "+shellQuote(p.short(run.dir.Path))+" ends it")
}
