package launch

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
)

// The pauses before restarts that follow each other without progress.
const (
	firstPause  = 2 * time.Second
	longestWait = 30 * time.Second
)

// progress knows how far the run has come: only a checkpoint that verifies is any.
// A user's program keeps its own, of which nothing is known.
type progress struct {
	folder string
	start  chan int // the step at the beginning, once it is known
	began  int
	newest int
	ready  bool
	ctx    context.Context // of the launch
}

// watchProgress looks at what there is when the launcher starts, until the context ends. Large checkpoints
// take a while to read, for which no rank waits.
func watchProgress(ctx context.Context, o Options) *progress {
	p := &progress{ctx: ctx, folder: o.Dir.Checkpoints(), start: make(chan int, 1)}
	if o.Job.Train == nil || o.Job.Restart.MaxWithoutProgress == 0 && o.Job.Restart.Requeue == 0 {
		p.start <- -1 // nobody will ask
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

// look waits for the beginning to be known, and looks at what has come since.
func (p *progress) look() {
	if !p.ready {
		p.began = <-p.start
		p.newest, p.ready = p.began, true
	}
}

// further says whether there is a newer checkpoint than when it was last asked.
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

// since says whether there is a newer checkpoint than at the beginning.
func (p *progress) since() bool {
	p.further()
	return p.newest > p.began
}

// newestGood is the step of the newest checkpoint that verifies, if it is newer than
// than, and than otherwise. The entries are the newest first.
func newestGood(ctx context.Context, entries []checkpoint.Entry, than int) int {
	for _, e := range entries {
		if e.Step <= than {
			break
		}
		if s, err := e.Open(ctx); err == nil {
			s.Close() // only read
			return e.Step
		}
	}
	return than
}

// backOff is the pause before a restart, of which so many have brought no progress:
// none before the first, then twice as long each time.
func backOff(without int) time.Duration {
	if without <= 1 {
		return 0
	}
	return min(firstPause<<min(without-2, 10), longestWait)
}

// in says when.
func in(pause time.Duration) string {
	if pause == 0 {
		return ""
	}
	return fmt.Sprintf(" in %s", pause)
}

// rest waits out a pause. A request to stop ends it, and is left to the next attempt:
// its ranks stop as soon as they have joined, in the way of all others.
func (o Options) rest(ctx context.Context, pause time.Duration, near <-chan struct{}) (asked os.Signal) {
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	case <-near:
	case asked = <-o.Signals:
	}
	return asked
}
