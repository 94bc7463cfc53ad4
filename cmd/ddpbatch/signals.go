package main

import (
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
