package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs/runs"
)

// notifyStop returns a channel of the signals that ask a launcher or a rank to save and stop:
// SIGTERM and SIGUSR1 from Slurm, SIGINT from Control-C, and SIGHUP unless nohup ignores it.
// The function quit restores the default handling.
//
// It also catches SIGPIPE, so that a closed pipe, such as `| head`, loses output but does not
// stop training.
func notifyStop() (signals <-chan os.Signal, quit func()) {
	c := make(chan os.Signal, 8)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGINT)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(c, syscall.SIGHUP)
	}
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	return c, func() { signal.Stop(c); signal.Stop(pipe) }
}

// contextWithSignal returns a context that is canceled if a signal arrives before the call of done.
// Until a rank has joined, it has nothing to save and can stop immediately.
func contextWithSignal(ctx context.Context, signals <-chan os.Signal) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case s := <-signals:
			cancel(exitError{exitStopped, fmt.Errorf("received a stop request before all ranks had joined: %s", s)})
		case <-over:
		}
	}()
	return ctx, func() { close(over); <-ended; cancel(nil) }
}

// interruptible returns a context that is canceled on SIGINT or SIGTERM. Commands that wait
// use it. The cause names the signal, and errors.Is reports that it is [context.Canceled]. A second
// signal immediately terminates the process.
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
