package launch

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
)

// Delays between consecutive restarts without progress.
const (
	minRestartDelay = 2 * time.Second
	maxRestartDelay = 30 * time.Second
)

// progress tracks the newest checkpoint of the run. Only a verified checkpoint counts. A
// user's program writes its own checkpoints, which ddpbatch cannot verify.
type progress struct {
	dir         string
	initial     chan int // receives the newest step at the start, once known
	initialStep int
	newestStep  int
	ready       bool
	ctx         context.Context // context of the launch

	earlierStep int // last step of a program in the attempts of earlier launchers, or 0
	programStep int // last step of a program in the attempts of this launcher, or -1
}

// watchProgress reads the checkpoints that exist when the launcher starts, until ctx is done.
// It reads them in the background, because large checkpoints take a while and no rank needs to
// wait.
func watchProgress(ctx context.Context, o Options) *progress {
	p := &progress{ctx: ctx, dir: o.Dir.Checkpoints(), initial: make(chan int, 1), programStep: -1}
	if o.Job.Train == nil && o.Job.Restart.OnFailure > 0 {
		attempts, _ := o.Dir.ReadAttempts() // without them, any step is progress
		for _, e := range attempts {
			p.earlierStep = max(p.earlierStep, e.Step)
		}
	}
	if o.Job.Train == nil || o.Job.Restart.MaxWithoutProgress == 0 && o.Job.Restart.Requeue == 0 && o.Job.Restart.OnFailure == 0 {
		p.initial <- -1 // not needed for this job
		return p
	}
	entries, err := checkpoint.List(p.dir)
	go func() {
		step := -1
		if err == nil {
			step = newestValid(ctx, entries, -1)
		}
		p.initial <- step
	}()
	return p
}

// waitForInitial waits until the newest step at the start is known.
func (p *progress) waitForInitial() {
	if !p.ready {
		p.initialStep = <-p.initial
		p.newestStep, p.ready = p.initialStep, true
	}
}

// advanced reports whether there is a newer checkpoint than at its last call.
func (p *progress) advanced() bool {
	p.waitForInitial()
	entries, err := checkpoint.List(p.dir)
	if err != nil {
		return false
	}
	previous := p.newestStep
	p.newestStep = newestValid(p.ctx, entries, previous)
	return p.newestStep > previous
}

// advancedSinceStart reports whether there is a newer checkpoint than when the launcher started.
func (p *progress) advancedSinceStart() bool {
	p.advanced()
	return p.newestStep > p.initialStep
}

// programAdvanced reports whether the program reported a later step than in the attempts of all
// earlier launchers.
func (p *progress) programAdvanced() bool { return p.programStep > p.earlierStep }

// newestValid returns the step of the newest valid checkpoint, or step if no valid checkpoint is
// newer. The entries must be sorted, newest first.
func newestValid(ctx context.Context, entries []checkpoint.Entry, step int) int {
	for _, e := range entries {
		if e.Step <= step {
			break
		}
		if s, err := e.Open(ctx); err == nil {
			s.Close() // opening verified it
			return e.Step
		}
	}
	return step
}

// restartDelay returns the delay before a restart, for the given number of restarts without
// progress. It is 0 for the first restart, and then doubles from minRestartDelay to
// maxRestartDelay.
func restartDelay(restarts int) time.Duration {
	if restarts <= 1 {
		return 0
	}
	return min(minRestartDelay<<min(restarts-2, 10), maxRestartDelay)
}

// formatDelay formats a delay for a message. It returns an empty string for no delay.
func formatDelay(pause time.Duration) string {
	if pause == 0 {
		return ""
	}
	return fmt.Sprintf(" in %s", pause)
}

// waitBeforeRestart waits for the delay between two attempts. A stop request ends the wait and is
// returned, so that the next attempt handles it: its ranks stop as soon as they have joined.
func (o Options) waitBeforeRestart(ctx context.Context, pause time.Duration, near <-chan struct{}) (asked os.Signal) {
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	case <-near:
	case asked = <-o.Signals:
	}
	return asked
}
