package communicator

import (
	"fmt"
	"sync"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// alarms find the reason why an operation does not end. While all operations end in time, the hosts
// exchange no messages. Each rank listens to its two neighbors in a ring. A rank whose operation is
// overdue sends an alarm to both, and they forward it, so that it also gets past a rank that is
// stopped. Then all ranks gather their progress, also ranks without an operation, and every rank
// finds the same culprit. If a rank dies, its connections end, and the others detect it immediately.
type alarms struct {
	comm      *Comm
	sent      sync.Once
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
		request := c.hosts[1].Start(collective.WithTimeout(c.ctx, collective.NoTimeout), collective.Receive(message, neighbor, 1-direction))
		a.listener.Go(func() {
			if err := request.Wait(); err != nil {
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

// send starts to send a message to both neighbors, unless they have one already. The listener also
// waits for these sends, because canceling one fails the host communicator of all ranks.
func (a *alarms) send(message byte) {
	a.sent.Do(func() {
		for direction, neighbor := range a.neighbors() {
			request := a.comm.hosts[1].Start(collective.WithTimeout(a.comm.ctx, collective.NoTimeout), collective.Send([]byte{message}, neighbor, direction))
			a.listener.Go(func() { _ = request.Wait() }) // a lost neighbor also fails the receive
		}
	})
}

// end notifies the neighbors that this rank's operations have ended, and waits a few seconds for their
// notices. It reports whether both have arrived.
func (a *alarms) end() bool {
	if a == nil {
		return true
	}
	a.send(messageEnd)
	return a.comm.waitForGroup(&a.listener)
}

// raise passes on an alarm and finds the culprit.
func (a *alarms) raise() {
	a.send(messageAlarm)
	a.diagnosis.Do(func() {
		at := a.comm.begun.Load()
		a.comm.failed(at, a.diagnose())
	})
}

// diagnose gathers the progress of all ranks and returns the reason why an operation is overdue.
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

// findCulprit returns an error that names the culprit: the rank that prevents the end of the first
// operation that has not ended on all ranks. The culprit has not begun the operation, its GPU has not
// reached it, or it runs a different operation from this rank. If no rank is the culprit, findCulprit
// returns nil.
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
	local := ranks[own]
	for r, p := range ranks {
		if p.ended == number && local.ended == number && p.signature != local.signature {
			return &remoteError{r, collective.Diverged(number, local.signature, p.signature)}
		}
	}
	return nil
}
