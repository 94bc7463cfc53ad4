package main

import (
	"context"
	"errors"
	"os/signal"
	"syscall"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs/runs"
)

// interruptible returns a context that is canceled on SIGINT or SIGTERM. Commands that wait
// use it. The cause names the signal and is a [context.Canceled]. A second signal immediately
// terminates the process.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // restore the default handling after the first signal
	return ctx, stop
}

// explainInterrupt adds a hint to the error of an interrupted command: the run itself continues.
func (p *program) explainInterrupt(run runs.Run, err error) error {
	if !errors.Is(err, context.Canceled) {
		return err
	}
	what := "job"
	if run.IsLaunched() {
		what = "run"
	}
	return hints.Add(err, "the "+what+" continues; to cancel it, run `ddpbatch cancel "+shellQuote(p.short(run.Dir.Path))+"`")
}
