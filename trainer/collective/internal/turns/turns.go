// Package turns lets the operations of a communicator run in the order in which they
// were called, whichever goroutines perform them.
//
// It does not bound how long one waits for the one before, which bounds itself.
package turns

import "sync"

// Turns are numbers that are drawn, and served one after another, from 0 on. The zero
// value is ready.
type Turns struct {
	mu            sync.Mutex
	changed       sync.Cond
	next, serving uint64
}

// Draw takes the next number.
func (t *Turns) Draw() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next++
	return t.next - 1
}

// Await returns when a number is served.
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

// Done has the number after the present one served.
func (t *Turns) Done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.serving++
	t.changed.Broadcast()
}

// Drawn is how many numbers have been drawn.
func (t *Turns) Drawn() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.next
}
