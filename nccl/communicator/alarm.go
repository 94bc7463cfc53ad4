package communicator

import (
	"fmt"
	"sync"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// alarms find the reason why an operation does not end, without a message between the hosts while all
// is well. Each rank listens to its two neighbors in a ring. A rank whose operation is overdue sends
// an alarm to both, and they pass it on, so that it also gets past a rank that is stopped. Then all
// ranks exchange their progress, even those that are not in an operation, and every rank finds the
// same culprit. A rank that dies is noticed immediately, because nobody hears from it anymore.
type alarms struct {
	comm      *Comm
	told      sync.Once
	diagnosis sync.Once
	listener  sync.WaitGroup
}

// The messages to the neighbors.
const (
	messageEnd   = iota // all operations have ended
	messageAlarm        // an operation is overdue
)

// diagnoseTimeout returns the limit of the search for the culprit.
func diagnoseTimeout(timeout time.Duration) time.Duration { return min(4*timeout, 30*time.Second) }

// startAlarms starts to listen.
func (c *Comm) startAlarms() {
	a := &alarms{comm: c}
	c.alarms = a
	for direction, neighbor := range a.neighbors() {
		message := make([]byte, 1)
		heard := c.hosts[1].Start(collective.WithTimeout(c.ctx, localTimeout), collective.Receive(message, neighbor, 1-direction))
		a.listener.Go(func() {
			if err := heard.Wait(); err != nil {
				c.failed(c.begun.Load(), err)
			} else if message[0] == messageAlarm {
				a.raise()
			}
		})
	}
}

// neighbors returns the next and the previous rank. The index is the tag of messages to that rank.
func (a *alarms) neighbors() [2]int {
	r, n := a.comm.Rank(), a.comm.Size()
	return [2]int{(r + 1) % n, (r + n - 1) % n}
}

// tell sends a message to both neighbors, unless they have one already.
func (a *alarms) tell(message byte) {
	a.told.Do(func() {
		for direction, neighbor := range a.neighbors() {
			a.comm.hosts[1].Start(collective.WithTimeout(a.comm.ctx, localTimeout), collective.Send([]byte{message}, neighbor, direction))
		}
	})
}

// end tells the neighbors that this rank's operations have ended, and waits a few seconds for theirs.
// It reports whether all is well.
func (a *alarms) end() bool {
	if a == nil {
		return true
	}
	a.tell(messageEnd)
	done := make(chan struct{})
	go func() { a.listener.Wait(); close(done) }()
	select {
	case <-done:
		return true
	case <-time.After(closeTimeout / 2):
	case <-a.comm.ctx.Done():
	}
	return false
}

// raise passes on an alarm and finds the culprit.
func (a *alarms) raise() {
	a.tell(messageAlarm)
	a.diagnosis.Do(func() {
		at := a.comm.begun.Load()
		a.comm.failed(at, a.diagnose())
	})
}

// diagnose exchanges the progress of all ranks and returns the reason why an operation is overdue.
func (a *alarms) diagnose() error {
	c := a.comm
	own := c.position().encode()
	all := make([]int64, c.Size()*len(own))
	ctx := collective.WithTimeout(c.ctx, diagnoseTimeout(c.options.Timeout))
	if err := c.hosts[0].Do(ctx, collective.AllGather(all, own)); err != nil {
		return err
	}
	positions := make([]position, c.Size())
	for r := range positions {
		positions[r] = decodePosition(all[r*len(own):])
	}
	if err := findCulprit(positions, c.Rank()); err != nil {
		return err
	}
	return timeoutError(c.options.Timeout)
}

// A position is the position of a rank in its operations.
type position struct {
	begun, ended uint64 // numbers of operations that the rank has begun, and that have ended
	waits        bool   // the GPU has not reached the first operation that has not ended
	signature    collective.Signature
}

// position returns the position of this rank.
func (c *Comm) position() position {
	p := c.lane.getProgress()
	at := position{ended: p.ended, waits: p.waits}
	if o := c.begun.Load(); o != nil {
		at.begun = o.number + 1
	}
	if p.current != nil {
		at.signature = p.current.signature()
	}
	return at
}

func (p position) encode() []int64 {
	waits := int64(0)
	if p.waits {
		waits = 1
	}
	return append([]int64{int64(p.begun), int64(p.ended), waits}, encodeSignature(p.signature)...)
}

func decodePosition(v []int64) position {
	return position{uint64(v[0]), uint64(v[1]), v[2] != 0, decodeSignature(v[3:])}
}

// findCulprit returns an error that names the rank that prevents the end of the first operation that
// has not ended on all ranks: one that has not begun it, one whose GPU has not reached it, or one that
// runs a different operation than this rank. It returns nil if there is none.
func findCulprit(ranks []position, own int) error {
	number := ranks[own].ended
	for _, p := range ranks {
		number = min(number, p.ended)
	}
	for r, p := range ranks {
		if p.begun <= number {
			return &remoteError{r, fmt.Errorf("it has not begun operation %d, which other ranks have begun: its program is stuck or has diverged", number)}
		}
	}
	for r, p := range ranks {
		if p.ended == number && p.waits {
			return &remoteError{r, fmt.Errorf("its GPU has not reached operation %d: a computation before it is stuck or slow", number)}
		}
	}
	ours := ranks[own]
	for r, p := range ranks {
		if p.ended == number && ours.ended == number && p.signature != ours.signature {
			return &remoteError{r, collective.Diverged(number, ours.signature, p.signature)}
		}
	}
	return nil
}
