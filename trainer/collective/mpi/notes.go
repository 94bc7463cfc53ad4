package mpi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective/mpi/libmpi"
)

// noteBytes is the size of a note in bytes: small enough that every library sends it immediately,
// even if no receive is posted.
const noteBytes = 512

// noteKind is the type of a note.
type noteKind string

const (
	noteFailed noteKind = "failed" // the sender has failed
	noteClosed noteKind = "closed" // the sender stopped before operation Sequence
	noteWhere  noteKind = "where"  // query: is the receiver in operation Sequence?
	noteHere   noteKind = "here"   // answer: the sender is
)

// note is a control message between ranks, outside of the operations.
type note struct {
	Kind     noteKind `json:"kind"`
	From     int      `json:"from"`
	Comm     uint64   `json:"comm,omitempty"` // ID of the communicator in this package
	Sequence uint64   `json:"sequence"`
	Culprit  int      `json:"culprit,omitempty"`
	Text     string   `json:"text,omitempty"`
}

// notes holds the received notes. The process's mutex guards them.
type notes struct {
	comm    libmpi.Handle
	in      []byte        // receive buffer
	request libmpi.Handle // receive request
	posted  bool
	closed  map[commRank]uint64 // first operation that a rank does not perform
	here    map[commRank]uint64 // operation that a rank is in, according to its last note
	now     map[uint64]uint64   // operation of this rank, by communicator
	abort   *remoteAbort
}

// commRank identifies a rank of the world in a communicator.
type commRank struct {
	comm uint64
	rank int
}

// remoteAbort is the failure that another rank reported, with the failed rank.
type remoteAbort struct {
	by, culprit int
	text        string
}

func (t *remoteAbort) Error() string { return fmt.Sprintf("rank %d gave up: %s", t.by, t.text) }

// firstOpen returns a rank of n other than self that has not closed a communicator, or -1 if all
// have.
func (s *notes) firstOpen(comm uint64, n, self int) int {
	for r := range n {
		if _, ok := s.closed[commRank{comm, r}]; !ok && r != self {
			return r
		}
	}
	return -1
}

// startNotes starts to receive notes. The caller of this and the following methods holds the mutex.
func (p *process) startNotes() (err error) {
	s := &p.notes
	s.closed, s.here, s.now = map[commRank]uint64{}, map[commRank]uint64{}, map[uint64]uint64{}
	if s.in, err = p.memory.alloc(noteBytes); err != nil {
		return err
	}
	return p.postNote()
}

func (p *process) postNote() error {
	s := &p.notes
	err := p.lib.Irecv(address(s.in), noteBytes, p.lib.Type(libmpi.Byte), p.lib.AnySource(), 0, s.comm, &s.request)
	s.posted = err == nil
	return err
}

// stopNotes stops receiving.
func (p *process) stopNotes() error {
	if !p.notes.posted {
		return nil
	}
	p.notes.posted = false
	if err := p.lib.Cancel(&p.notes.request); err != nil {
		return err
	}
	for end := time.Now().Add(drainTimeout); ; {
		done, err := p.test(&p.notes.request)
		if done || err != nil {
			return err
		}
		if time.Now().After(end) {
			return errors.New("could not cancel a receive")
		}
	}
}

// readNotes processes all notes that have arrived.
func (p *process) readNotes() error {
	s := &p.notes
	for s.posted {
		done, err := p.test(&s.request)
		if err != nil || !done {
			return err
		}
		s.posted = false
		var n note
		if err := json.Unmarshal(s.in[:noteBytes], &n); err != nil {
			return fmt.Errorf("decode a message of another rank: %w", err)
		}
		if err := p.postNote(); err != nil {
			return err
		}
		if err := p.take(n); err != nil {
			return err
		}
	}
	return nil
}

func (p *process) take(n note) error {
	s, at := &p.notes, commRank{n.Comm, n.From}
	switch n.Kind {
	case noteClosed:
		s.closed[at] = n.Sequence
	case noteHere:
		s.here[at] = n.Sequence
	case noteFailed:
		if s.abort == nil {
			s.abort = &remoteAbort{n.From, n.Culprit, n.Text}
		}
	case noteWhere:
		if now, ok := s.now[n.Comm]; ok {
			return p.sendNote([]int{n.From}, note{Kind: noteHere, Comm: n.Comm, Sequence: now})
		}
	}
	return nil
}

// sendNote sends a note to ranks. It does not wait until they read it.
func (p *process) sendNote(ranks []int, n note) error {
	if p.finalizing {
		return net.ErrClosed
	}
	n.From = p.rank
	text, err := json.Marshal(n)
	for err == nil && len(text) > noteBytes {
		n.Text = n.Text[:len(n.Text)/2]
		text, err = json.Marshal(n)
	}
	if err != nil {
		return err
	}
	// This memory is reused only if all transfers end below: nothing waits for them later.
	out, err := p.memory.alloc(noteBytes)
	if err != nil {
		return err
	}
	fill(out[:noteBytes], text)
	requests := make([]libmpi.Handle, len(ranks))
	for i, r := range ranks {
		if r == p.rank {
			continue
		}
		if err := p.lib.Isend(address(out), noteBytes, p.lib.Type(libmpi.Byte), r, 0, p.notes.comm, &requests[i]); err != nil {
			return err
		}
	}
	// Small messages are sent immediately or at the next poll of the library.
	for end := time.Now().Add(drainTimeout / 10); len(requests) > 0 && time.Now().Before(end); {
		last := &requests[len(requests)-1]
		done := *last == 0
		if !done {
			if done, err = p.test(last); err != nil {
				return err
			}
		}
		if done {
			requests = requests[:len(requests)-1]
		}
	}
	if len(requests) == 0 {
		p.memory.release(out)
	}
	return nil
}

// fill copies text to b and pads it with spaces.
func fill(b, text []byte) {
	for i := copy(b, text); i < len(b); i++ {
		b[i] = ' '
	}
}
