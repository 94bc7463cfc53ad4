package mesh

import "sync"

// local is the mesh of a rank that is a goroutine of this process.
type local struct {
	inbox
	rank  int
	all   []*local
	state func(group uint64) State
	close sync.Once
}

// Local returns the meshes of n ranks in this process. state returns the answer of a rank to
// [Mesh.Query]; it must not block.
func Local(n int, state func(rank int, group uint64) State) []Mesh {
	ranks, out := make([]*local, n), make([]Mesh, n)
	for i := range n {
		ranks[i] = &local{inbox: newInbox(), rank: i, all: ranks, state: func(group uint64) State { return state(i, group) }}
		out[i] = ranks[i]
	}
	return out
}

// Send copies b to the rank.
func (l *local) Send(to int, h Head, b []byte) *Transfer {
	if err := l.Lost([]int{to}); err != nil {
		return finished(to, err)
	}
	t, into, err := l.all[to].arrive(l.rank, h, len(b))
	if err != nil {
		l.all[to].fail(err)
		return finished(to, nil) // the other rank detects the error and reports it
	}
	copy(into, b)
	l.all[to].complete(t)
	return finished(to, nil)
}

// Abort fails the meshes of all ranks.
func (l *local) Abort(reason *PeerError) {
	l.fail(reason)
	for _, other := range l.all {
		other.fail(&PeerError{reason.Peer, abortReason(l.rank, reason)})
	}
}

// Close marks this rank as lost on all other ranks.
func (l *local) Close() error {
	l.close.Do(func() {
		l.fail(ErrClosed)
		for _, other := range l.all {
			other.markLost(l.rank, errConnectionClosed)
		}
	})
	return nil
}

// Addr returns a placeholder, because goroutines have no address.
func (l *local) Addr(int) string { return "this process" }
