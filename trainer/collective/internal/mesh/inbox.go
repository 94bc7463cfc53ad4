package mesh

import (
	"fmt"
	"sync"
)

// inbox matches messages with the transfers that wait for them.
type inbox struct {
	mu       sync.Mutex
	messages map[messageKey]*Transfer
	current  map[uint64]entered // operation of each group that this rank is in
	lost     map[int]*PeerError
	failed   error
	store    store
}

type messageKey struct {
	from int
	Key
}

type entered struct {
	sequence  uint64
	signature Signature
}

func newInbox() inbox {
	return inbox{messages: map[messageKey]*Transfer{}, current: map[uint64]entered{}, lost: map[int]*PeerError{}}
}

// finished returns a transfer that has finished.
func finished(peer int, err error) *Transfer {
	t := &Transfer{peer: peer, done: make(chan struct{}), err: err}
	close(t.done)
	return t
}

// failure returns the reason why a rank cannot send anymore, or nil. The caller holds mu.
func (x *inbox) failure(peer int) error {
	if x.failed != nil {
		return x.failed
	}
	if lost := x.lost[peer]; lost != nil {
		return lost
	}
	return nil
}

// Receive receives the message of a rank into b.
func (x *inbox) Receive(from int, h Head, b []byte) *Transfer {
	x.mu.Lock()
	defer x.mu.Unlock()
	at := messageKey{from, h.Key}
	t := x.messages[at]
	if t == nil {
		if err := x.failure(from); err != nil {
			return finished(from, err)
		}
		t = &Transfer{peer: from, h: h, b: b, done: make(chan struct{}), posted: true}
		x.messages[at] = t
		return t
	}
	if t.posted {
		panic(fmt.Sprintf("mesh: two wait for one message %+v of rank %d", h.Key, from))
	}
	if t.h.Signature != h.Signature || len(t.early) != len(b) {
		return finished(from, mismatch(from, h, t.h.Signature))
	}
	t.b, t.posted = b, true
	if t.state == arrived {
		x.deliver(t)
	}
	return t
}

func mismatch(from int, local Head, remote Signature) *Mismatch {
	return &Mismatch{Peer: from, Sequence: local.Sequence, Direct: local.Direct, Local: local.Signature, Remote: remote}
}

// deliver delivers an arrived message to its receiver. The caller holds mu.
func (x *inbox) deliver(t *Transfer) {
	if t.early != nil {
		copy(t.b, t.early)
		x.store.release(t.early)
	}
	delete(x.messages, messageKey{t.peer, t.h.Key})
	close(t.done)
}

// arrive returns the buffer for a message of n bytes that starts to arrive. The transfer must be
// passed to [inbox.complete] when the message is complete; it is nil after a failure.
func (x *inbox) arrive(from int, h Head, n int) (*Transfer, []byte, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.failed != nil {
		// The connection must remain open, because it carries the reason of the failure.
		return nil, make([]byte, n), nil
	}
	at := messageKey{from, h.Key}
	t := x.messages[at]
	if t != nil {
		if t.state != awaited {
			return nil, nil, &PeerError{from, fmt.Errorf("received the message %+v twice", h.Key)}
		}
		if t.h.Signature != h.Signature || len(t.b) != n {
			return nil, nil, mismatch(from, t.h, h.Signature)
		}
		t.state = arriving
		return t, t.b, nil
	}
	if now, in := x.current[h.Group]; in && !h.Direct && now.sequence == h.Sequence && now.signature != h.Signature {
		return nil, nil, mismatch(from, Head{h.Key, now.signature}, h.Signature)
	}
	early := x.store.alloc(n)
	if early == nil {
		return nil, nil, &PeerError{from, fmt.Errorf("received over %d bytes of messages that this rank has not requested yet", maxEarlyBytes)}
	}
	t = &Transfer{peer: from, h: h, early: early, state: arriving, done: make(chan struct{})}
	x.messages[at] = t
	return t, t.early, nil
}

// complete marks a message as complete.
func (x *inbox) complete(t *Transfer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if t == nil || x.messages[messageKey{t.peer, t.h.Key}] != t {
		return // it was dropped in the meantime
	}
	t.state = arrived
	if t.posted {
		x.deliver(t)
	}
}

// Enter records the operation that this rank is in.
func (x *inbox) Enter(group, sequence uint64, s Signature) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.failed != nil {
		return x.failed
	}
	x.current[group] = entered{sequence, s}
	for at, t := range x.messages {
		if !at.Direct && at.Group == group && at.Sequence == sequence && t.h.Signature != s {
			return mismatch(at.from, Head{at.Key, s}, t.h.Signature)
		}
	}
	return nil
}

// Leave removes a group. This rank enters no further operation of it.
func (x *inbox) Leave(group uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.current, group)
}

// Lost returns the error of the mesh, or of the first of these ranks that is lost, or nil.
func (x *inbox) Lost(ranks []int) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, r := range ranks {
		if err := x.failure(r); err != nil {
			return err
		}
	}
	return nil
}

// markLost marks a rank as lost and fails the transfers that wait for it. It returns the reason why
// nothing can be sent to the rank anymore: the error of the mesh if the mesh failed before, because
// the peers of a mesh that fails close their connections.
func (x *inbox) markLost(peer int, err error) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.lost[peer] == nil {
		x.lost[peer] = &PeerError{peer, err}
	}
	x.drop(func(from int) bool { return from == peer }, x.lost[peer])
	return x.failure(peer)
}

// fail fails all transfers with the error of the first call, and returns that error.
func (x *inbox) fail(err error) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.failed == nil {
		x.failed = err
	}
	x.drop(func(int) bool { return true }, x.failed)
	return x.failed
}

// drop fails the transfers that wait for the given ranks. The caller holds mu.
func (x *inbox) drop(from func(int) bool, err error) {
	for at, t := range x.messages {
		if t.state != arrived && from(at.from) {
			delete(x.messages, at)
			if t.posted {
				t.err = err
				close(t.done)
			}
		}
	}
}
