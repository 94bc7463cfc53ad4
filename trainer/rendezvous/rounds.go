package rendezvous

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// Decide turns what all ranks sent in a round (by rank) into what each of them
// gets back. It runs on the server, once per round. An error ends the attempt,
// and every rank is told it.
type Decide func(payloads [][]byte) (replies [][]byte, err error)

// FromRankZero gives every rank what rank 0 sent.
func FromRankZero(payloads [][]byte) ([][]byte, error) {
	return toAll(payloads[0], len(payloads)), nil
}

// toAll is one reply, held once, for so many ranks.
func toAll(reply []byte, ranks int) [][]byte {
	replies := make([][]byte, ranks)
	for r := range replies {
		replies[r] = reply
	}
	return replies
}

// round is what ranks have contributed so far, by rank; nil once it is decided.
type round struct {
	payloads [][]byte
	waiting  int
}

// exchange notes a rank's contribution to a round; the last one to come has the
// round decided and answered.
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
	members := append([]*wire.Conn(nil), s.members...)
	over := s.first != nil
	s.mu.Unlock()
	if over {
		return nil // somebody has left since; everyone is being told
	}
	s.conclude(name, decide, payloads, members)
	return nil
}

// conclude decides a round and tells the members.
func (s *Server) conclude(name string, decide Decide, payloads [][]byte, members []*wire.Conn) {
	replies, err := decide(payloads)
	if err == nil && len(replies) != s.o.WorldSize {
		err = fmt.Errorf("round %q has %d replies for %d ranks", name, len(replies), s.o.WorldSize)
	}
	if err == nil {
		toEach(members, func(rank int, c *wire.Conn) { _ = sendRound(c, kindReply, name, replies[rank]) })
		return
	}
	// Noted before a rank is told: its goodbye would otherwise be taken for
	// the first failure. Announced after, as the reply says more.
	s.mu.Lock()
	failed := s.recordLocked(Failure{Rank: -1, Reason: err.Error(), Advice: hintOf(err)})
	s.mu.Unlock()
	toEach(members, func(_ int, c *wire.Conn) { _ = send(c, kindFailed, failedMessage{name, err.Error(), hintOf(err)}) })
	if failed {
		s.mu.Lock()
		s.announceLocked()
		s.mu.Unlock()
	}
}

// senders is how many ranks are told something at once. One that does not read, since
// it is frozen, must not keep it from the others; and each holds a frame in memory.
const senders = 64

// toEach has f work on each member that is still there.
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
