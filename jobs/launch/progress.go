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
	firstPause  = 2 * time.Second
	longestWait = 30 * time.Second
)

// progress tracks the newest checkpoint of the run. Only a verified checkpoint counts. A
// user's program writes its own checkpoints, which ddpbatch does not know.
type progress struct {
	folder string
	start  chan int // receives the newest step at the start, once known
	began  int
	newest int
	ready  bool
	ctx    context.Context // context of the launch
}

// watchProgress reads the checkpoints that exist when the launcher starts, until ctx is done.
// It reads them in the background, because large checkpoints take a while and no rank needs to
// wait.
func watchProgress(ctx context.Context, o Options) *progress {
	p := &progress{ctx: ctx, folder: o.Dir.Checkpoints(), start: make(chan int, 1)}
	if o.Job.Train == nil || o.Job.Restart.MaxWithoutProgress == 0 && o.Job.Restart.Requeue == 0 {
		p.start <- -1 // not needed for this job
		return p
	}
	there, err := checkpoint.List(p.folder)
	go func() {
		step := -1
		if err == nil {
			step = newestGood(ctx, there, -1)
		}
		p.start <- step
	}()
	return p
}

// look waits until the newest step at the start is known.
func (p *progress) look() {
	if !p.ready {
		p.began = <-p.start
		p.newest, p.ready = p.began, true
	}
}

// further reports whether there is a newer checkpoint than at its last call.
func (p *progress) further() bool {
	p.look()
	there, err := checkpoint.List(p.folder)
	if err != nil {
		return false
	}
	before := p.newest
	p.newest = newestGood(p.ctx, there, before)
	return p.newest > before
}

// since reports whether there is a newer checkpoint than when the launcher started.
func (p *progress) since() bool {
	p.further()
	return p.newest > p.began
}

// newestGood returns the step of the newest valid checkpoint. If no valid checkpoint is newer
// than step than, it returns than. The entries must be sorted, newest first.
func newestGood(ctx context.Context, entries []checkpoint.Entry, than int) int {
	for _, e := range entries {
		if e.Step <= than {
			break
		}
		if s, err := e.Open(ctx); err == nil {
			s.Close() // opening verified it
			return e.Step
		}
	}
	return than
}

// backOff returns the delay before a restart, for the given number of restarts without
// progress. It is 0 for the first restart, and then doubles from firstPause to longestWait.
func backOff(without int) time.Duration {
	if without <= 1 {
		return 0
	}
	return min(firstPause<<min(without-2, 10), longestWait)
}

// in formats a delay for a message. It returns an empty string for no delay.
func in(pause time.Duration) string {
	if pause == 0 {
		return ""
	}
	return fmt.Sprintf(" in %s", pause)
}

// rest waits for the delay between two attempts. A stop request ends the wait and is returned,
// so that the next attempt handles it: its ranks stop as soon as they have joined.
func (o Options) rest(ctx context.Context, pause time.Duration, near <-chan struct{}) (asked os.Signal) {
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	case <-near:
	case asked = <-o.Signals:
	}
	return asked
}
