// Package turns runs the operations of a communicator in the order of their calls, in any
// goroutine.
//
// It sets no time limit: each operation limits itself.
package turns

import "sync"

// Turns hands out tickets and serves them in order, from 0. The zero value is ready to use.
type Turns struct {
	mu            sync.Mutex
	changed       sync.Cond
	next, serving uint64
}

// Draw returns the next ticket.
func (t *Turns) Draw() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next++
	return t.next - 1
}

// Await waits until a ticket is served.
func (t *Turns) Await(number uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.serving != number {
		if t.changed.L == nil {
			t.changed.L = &t.mu
		}
		t.changed.Wait()
	}
}

// Done serves the next ticket.
func (t *Turns) Done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.serving++
	t.changed.Broadcast()
}

// Drawn returns the number of tickets handed out.
func (t *Turns) Drawn() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.next
}
