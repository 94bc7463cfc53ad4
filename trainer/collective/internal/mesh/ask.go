package mesh

import (
	"context"
	"encoding/binary"
	"fmt"
)

// A State is the position of a rank in the operations of a group.
type State struct {
	// Sequence is the operation that the rank is in, or the next one.
	Sequence uint64
	// Signature is the signature of that operation. Its Kind is 0 if the rank is in no operation.
	Signature Signature
	// WaitsFor is the rank that the operation waits for, or -1.
	WaitsFor int
}

// answerGroup is the group of the messages that answer queries.
const answerGroup = 1 << 60

const stateBytes = 8 + 4 + 3 + 4 + 8

func (s State) encode() []byte {
	order := binary.LittleEndian
	b := order.AppendUint64(nil, s.Sequence)
	b = order.AppendUint32(b, uint32(int32(s.WaitsFor)))
	b = append(b, s.Signature.Kind, s.Signature.Type, s.Signature.Op)
	b = order.AppendUint32(b, uint32(s.Signature.Root))
	return order.AppendUint64(b, s.Signature.Bytes)
}

// decodeState decodes the answer of one of n ranks, which has stateBytes bytes.
func decodeState(b []byte, n int) (State, error) {
	order := binary.LittleEndian
	s := State{Sequence: order.Uint64(b), WaitsFor: int(int32(order.Uint32(b[8:]))),
		Signature: Signature{Kind: b[12], Type: b[13], Op: b[14], Root: int32(order.Uint32(b[15:])), Bytes: order.Uint64(b[19:])}}
	if s.WaitsFor < -1 || s.WaitsFor >= n {
		return State{}, fmt.Errorf("invalid answer: waits for rank %d of %d", s.WaitsFor, n)
	}
	return s, nil
}

// answerHead returns the head of the answer to a query.
func answerHead(question uint64) Head { return Head{Key: Key{Group: answerGroup, Sequence: question}} }

// Query queries the state of a rank in a group. The rank answers in the background, as long as its
// process runs.
func (n *network) Query(ctx context.Context, rank int, group uint64) (State, error) {
	h := answerHead(n.queries.Add(1))
	b := make([]byte, stateBytes)
	in := n.Receive(rank, h, b)
	question := frame{class: classQuery, Head: Head{Key: Key{Group: group, Sequence: h.Sequence}}}
	n.peers[rank].sockets[0].put(outgoing{question, nil, &Transfer{peer: rank, done: make(chan struct{})}})
	if err := in.Wait(ctx); err != nil {
		return State{}, err
	}
	s, err := decodeState(b, len(n.peers))
	if err != nil {
		return State{}, &PeerError{rank, err}
	}
	return s, nil
}

// reply answers a query over the socket that received it.
func (n *network) reply(peer int, s *socket, question *frame) {
	t := &Transfer{peer: peer, done: make(chan struct{})}
	s.put(outgoing{frame{class: classOperation, Head: answerHead(question.Sequence)}, n.o.State(question.Group).encode(), t})
}

// Query returns the state of another goroutine's rank.
func (l *local) Query(_ context.Context, rank int, group uint64) (State, error) {
	if err := l.Lost([]int{rank}); err != nil {
		return State{}, err
	}
	return l.all[rank].state(group), nil
}
