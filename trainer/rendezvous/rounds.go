package rendezvous

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// A Decide function converts the payloads of all ranks, by rank, to the reply for each rank.
// It runs on the server, once per round. An error ends the attempt, and every rank receives
// it.
type Decide func(payloads [][]byte) (replies [][]byte, err error)

// FromRankZero returns the payload of rank 0 to every rank.
func FromRankZero(payloads [][]byte) ([][]byte, error) {
	return toAll(payloads[0], len(payloads)), nil
}

// toAll returns one reply for each rank. All replies share one slice.
func toAll(reply []byte, ranks int) [][]byte {
	replies := make([][]byte, ranks)
	for r := range replies {
		replies[r] = reply
	}
	return replies
}

// A round is the state of a round on the server.
type round struct {
	payloads [][]byte // received so far, by rank; nil after the decision
	waiting  int      // number of ranks without a payload
}

// exchange records a rank's payload for a round. After the last payload, it decides the round
// and sends the replies.
func (s *Server) exchange(rank int, name string, payload []byte) error {
	decide, known := s.o.Rounds[name]
	if !known {
		return fmt.Errorf("unknown round %q", name)
	}
	s.mu.Lock()
	r := s.rounds[name]
	if r == nil {
		r = &round{make([][]byte, s.o.WorldSize), s.o.WorldSize}
		s.rounds[name] = r
	}
	if r.waiting == 0 || r.payloads[rank] != nil {
		s.mu.Unlock()
		return fmt.Errorf("round %q was answered twice", name)
	}
	r.payloads[rank] = payload
	if r.waiting--; r.waiting > 0 {
		s.mu.Unlock()
		return nil
	}
	payloads := r.payloads
	r.payloads = nil
	members := slices.Clone(s.members)
	hasFailed := s.first != nil
	s.mu.Unlock()
	if hasFailed {
		return nil // a rank has failed since; the failure is being sent to all ranks
	}
	s.decideRound(name, decide, payloads, members)
	return nil
}

// decideRound decides a round and sends the replies.
func (s *Server) decideRound(name string, decide Decide, payloads [][]byte, members []*wire.Conn) {
	replies, err := decide(payloads)
	if err == nil && len(replies) != s.o.WorldSize {
		err = fmt.Errorf("round %q has %d replies for %d ranks", name, len(replies), s.o.WorldSize)
	}
	if err == nil {
		toEach(members, func(rank int, c *wire.Conn) { _ = sendRound(c, kindReply, name, replies[rank]) })
		return
	}
	// Record the failure before the reply is sent. Otherwise the leave message of a rank that
	// receives the reply would become the first failure. Announce it afterwards, because the
	// reply has more detail.
	s.mu.Lock()
	failed := s.recordLocked(Failure{Rank: -1, Reason: err.Error(), Advice: hints.Of(err)})
	s.mu.Unlock()
	toEach(members, func(_ int, c *wire.Conn) { _ = send(c, kindFailed, failedMessage{name, err.Error(), hints.Of(err)}) })
	if failed {
		s.mu.Lock()
		s.announceLocked()
		s.mu.Unlock()
	}
}

// senders is the number of ranks that receive a message concurrently. A frozen rank that does
// not read must not delay the others, and each send holds a frame in memory.
const senders = 64

// toEach calls f for each connected member, concurrently.
func toEach(members []*wire.Conn, f func(rank int, c *wire.Conn)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(senders, len(members)) {
		all.Go(func() {
			for {
				rank := int(next.Add(1)) - 1
				if rank >= len(members) {
					return
				}
				if members[rank] != nil {
					f(rank, members[rank])
				}
			}
		})
	}
	all.Wait()
}
