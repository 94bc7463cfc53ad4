package mpi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
	"github.com/ddpbatch/ddpbatch/trainer/collective/mpi/libmpi"
)

// offenderError is a failure with the member that caused it.
type offenderError struct {
	index int
	err   error
}

func (e *offenderError) Error() string { return e.err.Error() }
func (e *offenderError) Unwrap() error { return e.err }

// compareCalls makes all ranks compare their next operation. It computes two maxima over all ranks: of
// a digest of the call and of the digest's complement. They are complements of each other only if all
// digests are equal. compareCalls also reports whether any rank needs windows. If a rank is in a
// different operation, the error names it.
func (g *group) compareCalls(ctx context.Context, sequence uint64, c *collective.Call, problem error, staged bool) (bool, error) {
	n := len(g.members)
	if n == 1 {
		return staged, problem
	}
	if g.voteBuffer == nil {
		var err error
		if g.voteBuffer, err = g.memory.alloc(3 * 8); err != nil {
			return false, err
		}
	}
	own := digest(sequence, c.Signature(n), problem != nil)
	vote := element.View[uint64](g.voteBuffer[:3*8])
	vote[0], vote[1], vote[2] = own, ^own, 0
	if staged {
		vote[2] = 1
	}
	g.enter(sequence)
	l := g.lib
	err := g.request(ctx, sequence, true, func(r *libmpi.Handle) error {
		return l.Iallreduce(nil, address(g.voteBuffer), 3, l.Type(libmpi.Uint64), l.Op(libmpi.Max), g.comm, r)
	})
	if err != nil {
		return false, g.findUnresponsive(sequence, err)
	}
	if vote[0] == ^vote[1] {
		return vote[2] != 0, problem
	}
	if err := g.findMismatch(ctx, sequence, c, problem); err != nil {
		return false, err
	}
	return false, errors.New("the ranks are in different operations, but report equal ones")
}

// digest returns a value that differs for different calls.
func digest(sequence uint64, s collective.Signature, invalid bool) uint64 {
	h := sequence
	if invalid {
		h ^= 1 << 63
	}
	for _, v := range [...]uint64{uint64(s.Kind), uint64(s.Type), uint64(s.Op), uint64(s.Root), s.Bytes} {
		// The steps of SplitMix64 (Steele et al., 2014).
		h += v + 0x9e3779b97f4a7c15
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}

// ticket describes a rank's call. The ranks exchange tickets if their calls differ.
type ticket struct {
	Sequence  uint64               `json:"sequence"`
	Signature collective.Signature `json:"signature"`
	Problem   string               `json:"problem,omitempty"`
}

// findMismatch finds the first rank whose call differs from this rank's call.
func (g *group) findMismatch(ctx context.Context, sequence uint64, c *collective.Call, problem error) error {
	const ticketBytes = 512
	own := ticket{Sequence: sequence, Signature: c.Signature(len(g.members))}
	if problem != nil {
		own.Problem = problem.Error()
		own.Problem = own.Problem[:min(len(own.Problem), ticketBytes/4)]
	}
	text, err := json.Marshal(own)
	if err != nil {
		return err
	}
	n := len(g.members)
	all, err := g.memory.alloc(n * ticketBytes)
	if err != nil {
		return err
	}
	fill(all[g.index*ticketBytes:][:ticketBytes], text)
	l := g.lib
	err = g.request(ctx, sequence, true, func(r *libmpi.Handle) error {
		return l.Iallgather(nil, address(all), ticketBytes, l.Type(libmpi.Byte), g.comm, r)
	})
	if err != nil {
		return err
	}
	if problem != nil {
		return problem
	}
	for r := range n {
		var peer ticket
		if err := json.Unmarshal(all[r*ticketBytes:][:ticketBytes], &peer); err != nil {
			return fmt.Errorf("decode the operation of rank %d: %w", g.members[r], err)
		}
		switch {
		case peer.Problem != "":
			return &offenderError{r, errors.New(peer.Problem)}
		case peer.Signature != own.Signature:
			return &offenderError{r, collective.Diverged(sequence, own.Signature, peer.Signature)}
		case peer.Sequence != sequence:
			return &offenderError{r, fmt.Errorf("that rank is in operation %d, this one in %d: the ranks' programs have diverged", peer.Sequence, sequence)}
		}
	}
	return nil
}

// enter records the operation of this rank, to answer queries.
func (g *group) enter(sequence uint64) {
	g.mu.Lock()
	g.notes.now[g.id] = sequence
	g.mu.Unlock()
}

// failureReason returns the reason why an operation cannot finish, or nil. The caller holds the
// mutex.
func (g *group) failureReason(sequence uint64) error {
	if t := g.notes.abort; t != nil {
		return t
	}
	if err := g.checkClosed(); err != nil {
		return err
	}
	if g.connecting {
		return nil // a rank that has closed before its first operation has taken part in the exchange of hosts
	}
	for r, of := range g.members {
		if from, ok := g.notes.closed[commRank{g.id, of}]; ok && from <= sequence {
			return &offenderError{r, errCommunicatorClosed}
		}
	}
	return nil
}

func noAnswer(timeout time.Duration) error { return timeoutError{timeout} }

// timeoutError is the error of an expired timeout.
type timeoutError struct{ time.Duration }

func (s timeoutError) Error() string { return fmt.Sprintf("no answer within %s", s.Duration) }

// findUnresponsive names the first rank that does not confirm that it is in an operation, after the
// operation's timeout. If all confirm it, it names the next rank.
func (g *group) findUnresponsive(sequence uint64, err error) error {
	var timeoutErr timeoutError
	if !errors.As(err, &timeoutErr) {
		return err
	}
	g.mu.Lock()
	clear(g.notes.here)
	sendErr := g.sendNote(g.members, note{Kind: noteWhere, Comm: g.id, Sequence: sequence})
	g.mu.Unlock()
	if sendErr != nil {
		return errors.Join(err, sendErr)
	}
	first := -1
	for end := time.Now().Add(min(drainTimeout, max(timeoutErr.Duration/4, drainTimeout/20))); ; time.Sleep(drainTimeout / 1000) {
		isLast := time.Now().After(end) // checked first: this rank may have been stopped while answers arrived
		g.mu.Lock()
		readErr := g.readNotes()
		failure := g.failureReason(sequence)
		first = -1
		for r, of := range g.members {
			if in, ok := g.notes.here[commRank{g.id, of}]; r != g.index && (!ok || in != sequence) {
				first = r
				break
			}
		}
		g.mu.Unlock()
		if readErr != nil || failure != nil {
			return errors.Join(failure, readErr)
		}
		if first < 0 || isLast {
			break
		}
	}
	if first < 0 {
		first = (g.index + 1) % len(g.members)
		err = fmt.Errorf("%w, although every rank is in the operation", err)
	}
	return &offenderError{first, err}
}

// finalizeError makes an error final: it breaks the group and notifies all other ranks.
func (g *group) finalizeError(name string, sequence uint64, err error) error {
	e := &collective.Error{Op: name, Sequence: sequence, Peer: g.peer(g.rank), Err: err}
	var of *offenderError
	var by *remoteAbort
	switch {
	case errors.As(err, &by):
		e.Peer = g.peer(by.culprit)
	case errors.As(err, &of):
		e.Peer, e.Err = g.peer(g.members[of.index]), of.err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.broken != nil {
		return g.broken
	}
	g.broken = e
	if by == nil {
		// Ranks that the message does not reach detect the failure themselves.
		_ = g.sendNote(g.allRanks, note{Kind: noteFailed, Culprit: e.Peer.Rank, Text: fmt.Sprintf("%s %d: %v", e.Op, e.Sequence, e.Err)})
	}
	return e
}
