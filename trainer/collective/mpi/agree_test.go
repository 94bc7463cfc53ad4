package mpi

import (
	"errors"
	"testing"
)

// TestPeerClosesWhileThisRankConnects checks that the exchange of hosts continues if another rank
// has already finished it and closed. An operation fails.
func TestPeerClosesWhileThisRankConnects(t *testing.T) {
	p := &process{size: 2}
	p.notes.closed = map[commRank]uint64{{comm: 0, rank: 1}: 0}
	g := newGroup(p, 0, 0, []int{0, 1}, 0)
	g.connecting = true
	if err := g.failureReason(0); err != nil {
		t.Errorf("while connecting: got %v, want no error", err)
	}
	g.connecting = false
	var of *offenderError
	if err := g.failureReason(0); !errors.As(err, &of) || of.index != 1 {
		t.Errorf("in an operation: got %v, want an error that names rank 1", err)
	}
}
