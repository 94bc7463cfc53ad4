package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// requests are the signals that ask a launcher or a rank to save and stop:
// Slurm's, Control-C, and the loss of the terminal unless nohup has it ignored.
// After quit is called they have their usual effect again.
//
// A pipe that nobody reads any more (`| head`) must not end the training:
// SIGPIPE is caught, and what is printed is lost.
func requests() (signals <-chan os.Signal, quit func()) {
	c := make(chan os.Signal, 8)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGINT)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(c, syscall.SIGHUP)
	}
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	return c, func() { signal.Stop(c); signal.Stop(pipe) }
}

// untilSignal is a context that ends when a signal arrives before done is
// called: a rank that is asked to stop has nothing to save until it has joined.
func untilSignal(ctx context.Context, signals <-chan os.Signal) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case s := <-signals:
			cancel(exitError{exitStopped, fmt.Errorf("asked to stop before all ranks had joined: %s", s)})
		case <-over:
		}
	}()
	return ctx, func() { close(over); <-ended; cancel(nil) }
}
