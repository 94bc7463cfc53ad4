package rendezvous

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// maxStrangers is how many connections may be in their handshake at once, over
// and above one per rank; further ones are closed unread.
const maxStrangers = 256

// Decide turns what all ranks sent in a round (by rank) into what each of them
// gets back. It runs on the server, once per round. An error ends the attempt,
// and every rank is told it.
type Decide func(payloads [][]byte) (replies [][]byte, err error)

// ServerOptions describe the attempt that a [Server] gathers.
type ServerOptions struct {
	WorldSize   int
	Secret      wire.Secret
	JoinTimeout time.Duration
	// Program and Spec are the digests that every rank must bring; empty ones
	// are taken from the first rank that joins.
	Program, Spec string
	// Host names the host on which a rank was started, for the message about
	// one that does not come. May be nil.
	Host func(rank int) string
	// Rounds holds the decision for each round that ranks may exchange.
	Rounds map[string]Decide
	// Warn is told of things that do not end the attempt. May be nil.
	Warn func(message string)
}

// Server is the meeting point of one attempt.
type Server struct {
	o        ServerOptions
	listener net.Listener
	joinTick *time.Timer

	mu         sync.Mutex
	ranks      []RankStatus
	members    []*wire.Conn
	rounds     map[string][][]byte
	left       int
	first      *Failure
	exit       int
	stopping   bool
	stopReason string
	joined     chan struct{}
	failing    chan struct{}
	finished   chan struct{}
	handlers   sync.WaitGroup
	shaking    int
	warned     map[string]bool
}

// Serve starts to gather ranks on listener, which it owns from now on.
func Serve(listener net.Listener, o ServerOptions) *Server {
	s := &Server{
		o: o, listener: listener,
		ranks:    make([]RankStatus, o.WorldSize),
		members:  make([]*wire.Conn, o.WorldSize),
		rounds:   map[string][][]byte{},
		joined:   make(chan struct{}),
		failing:  make(chan struct{}),
		finished: make(chan struct{}),
		warned:   map[string]bool{},
	}
	for r := range s.ranks {
		s.ranks[r] = RankStatus{Rank: r, State: Missing}
		if o.Host != nil {
			s.ranks[r].Host = o.Host(r)
		}
	}
	s.joinTick = time.AfterFunc(o.JoinTimeout, s.joinExpired)
	go s.accept()
	return s
}

// Port is the TCP port that the ranks must connect to.
func (s *Server) Port() int { return s.listener.Addr().(*net.TCPAddr).Port }

// Wait returns when every rank has ended, or when ctx is done.
func (s *Server) Wait(ctx context.Context) (Outcome, error) {
	select {
	case <-s.finished:
		return s.Outcome(), nil
	case <-ctx.Done():
		return s.Outcome(), context.Cause(ctx)
	}
}

// Joined is closed when every rank has joined.
func (s *Server) Joined() <-chan struct{} { return s.joined }

// Failing is closed at the first failure; [Server.Outcome] tells which.
func (s *Server) Failing() <-chan struct{} { return s.failing }

// Outcome is what is known now.
func (s *Server) Outcome() Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := Outcome{Ranks: append([]RankStatus(nil), s.ranks...), First: s.first, Exit: s.exit}
	return o
}

// Stop asks every rank to save and leave; ranks that join later are asked too.
func (s *Server) Stop(reason string) {
	s.mu.Lock()
	s.stopping, s.stopReason = true, reason
	members := s.connected()
	s.mu.Unlock()
	for _, c := range members {
		// A rank that cannot be told will be seen as lost by its reader.
		_ = send(c, kindStop, reasonMessage{reason})
	}
}

// Abort ends the attempt: reason becomes the first failure unless there is one,
// and every connected rank is told to end at once.
func (s *Server) Abort(f Failure) {
	s.mu.Lock()
	s.failLocked(f)
	s.mu.Unlock()
}

// Close drops every connection and the listener. Ranks that are still there
// take it as the loss of their launcher.
func (s *Server) Close() error {
	err := s.listener.Close()
	s.joinTick.Stop()
	s.mu.Lock()
	for _, c := range s.connected() {
		c.Close()
	}
	s.mu.Unlock()
	s.handlers.Wait()
	return err
}

func (s *Server) connected() []*wire.Conn {
	var out []*wire.Conn
	for _, c := range s.members {
		if c != nil {
			out = append(out, c)
		}
	}
	return out
}

func (s *Server) warn(key, message string) {
	if s.o.Warn == nil || s.warned[key] {
		return
	}
	s.warned[key] = true
	s.o.Warn(message)
}

func (s *Server) accept() {
	for {
		c, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Out of file descriptors, most likely: wait for some to come back.
			time.Sleep(50 * time.Millisecond)
			continue
		}
		s.mu.Lock()
		full := s.shaking >= s.o.WorldSize+maxStrangers
		if !full {
			s.shaking++
			s.handlers.Add(1)
		}
		s.mu.Unlock()
		if full {
			c.Close()
			continue
		}
		go s.handle(c)
	}
}

func (s *Server) handle(raw net.Conn) {
	defer s.handlers.Done()
	from, _, _ := net.SplitHostPort(raw.RemoteAddr().String())
	c, id, err := s.admit(raw)
	s.mu.Lock()
	s.shaking--
	s.mu.Unlock()
	if err != nil {
		s.mu.Lock()
		s.warn(from, fmt.Sprintf("a connection from %s is not a rank of this job and was dropped: %v", from, err))
		s.mu.Unlock()
		return
	}
	defer c.Close()
	if !s.welcome(c, id) {
		return
	}
	s.follow(c, id.Rank)
}

// admit has the peer prove itself and say who it is.
func (s *Server) admit(raw net.Conn) (*wire.Conn, Identity, error) {
	var id Identity
	c, err := wire.Server(raw, s.o.Secret, label)
	if err != nil {
		return nil, id, err
	}
	if err := c.SetReadDeadline(time.Now().Add(wire.HandshakeTimeout)); err != nil {
		return nil, id, err
	}
	kind, payload, err := c.ReadFrame()
	if err == nil && kind != kindJoin {
		err = fmt.Errorf("first message is of kind %d, not a join", kind)
	}
	if err == nil {
		err = json.Unmarshal(payload, &id)
	}
	if err == nil {
		err = c.SetReadDeadline(time.Time{})
	}
	if err != nil {
		c.Close()
		return nil, id, err
	}
	return c, id, nil
}

// welcome counts a proven rank in, or tells it why not.
func (s *Server) welcome(c *wire.Conn, id Identity) bool {
	s.mu.Lock()
	reason := s.objection(id)
	if reason == "" {
		s.members[id.Rank] = c
		st := &s.ranks[id.Rank]
		st.State, st.Host, st.PID, st.Seen = Joined, id.Host, id.PID, time.Now()
		if s.o.Program == "" {
			s.o.Program = id.Program
		}
		if s.o.Spec == "" {
			s.o.Spec = id.Spec
		}
		if s.countLocked(Missing) == 0 {
			s.joinTick.Stop()
			close(s.joined)
		}
	}
	stopping, stopReason, first := s.stopping, s.stopReason, s.first
	s.mu.Unlock()

	if reason != "" {
		_ = send(c, kindRefused, reasonMessage{reason})
		// A rank of this very job that must be refused cannot be waited for.
		s.Abort(Failure{Rank: id.Rank, Host: id.Host, Reason: reason})
		return false
	}
	if err := send(c, kindWelcome, struct{}{}); err == nil && first != nil {
		_ = send(c, kindAbort, reasonMessage{first.Reason})
	} else if err == nil && stopping {
		_ = send(c, kindStop, reasonMessage{stopReason})
	}
	return true
}

func (s *Server) objection(id Identity) string {
	who := fmt.Sprintf("rank %d on %s", id.Rank, id.Host)
	switch {
	case id.WorldSize != s.o.WorldSize:
		return fmt.Sprintf("%s was started for %d ranks, but this attempt has %d", who, id.WorldSize, s.o.WorldSize)
	case id.Rank < 0 || id.Rank >= s.o.WorldSize:
		return fmt.Sprintf("%s is outside 0..%d", who, s.o.WorldSize-1)
	case s.o.Program != "" && id.Program != s.o.Program:
		return fmt.Sprintf("%s runs another build of ddpbatch (%.12s, not %.12s)", who, id.Program, s.o.Program)
	case s.o.Spec != "" && id.Spec != s.o.Spec:
		return fmt.Sprintf("%s reads another job file (digest %.12s, not %.12s)", who, id.Spec, s.o.Spec)
	case s.ranks[id.Rank].State != Missing:
		return fmt.Sprintf("%s (process %d) joined, but rank %d is already process %d on %s",
			who, id.PID, id.Rank, s.ranks[id.Rank].PID, s.ranks[id.Rank].Host)
	}
	return ""
}

// follow serves one rank until it leaves or is lost.
func (s *Server) follow(c *wire.Conn, rank int) {
	for {
		kind, payload, err := c.ReadFrame()
		if err != nil {
			s.lost(rank, err)
			return
		}
		switch kind {
		case kindExchange:
			var m exchangeMessage
			if err = json.Unmarshal(payload, &m); err == nil {
				err = s.exchange(rank, m)
			}
		case kindBeat:
			var m beatMessage
			if err = json.Unmarshal(payload, &m); err == nil {
				s.mu.Lock()
				st := &s.ranks[rank]
				st.Step, st.Phase, st.Seen = m.Step, m.Phase, time.Now()
				s.mu.Unlock()
			}
		case kindLeave:
			var m leaveMessage
			if err = json.Unmarshal(payload, &m); err == nil {
				s.leave(rank, m)
				return
			}
		default:
			err = fmt.Errorf("message of unknown kind %d", kind)
		}
		if err != nil {
			s.lost(rank, err)
			return
		}
	}
}

// exchange notes a rank's contribution to a round; the last one to come has the
// round decided and answered.
func (s *Server) exchange(rank int, m exchangeMessage) error {
	decide, known := s.o.Rounds[m.Round]
	if !known {
		return fmt.Errorf("unknown round %q", m.Round)
	}
	s.mu.Lock()
	payloads := s.rounds[m.Round]
	if payloads == nil {
		payloads = make([][]byte, s.o.WorldSize)
		s.rounds[m.Round] = payloads
	}
	if payloads[rank] != nil {
		s.mu.Unlock()
		return fmt.Errorf("round %q was answered twice", m.Round)
	}
	payloads[rank] = append([]byte{}, m.Payload...)
	for _, p := range payloads {
		if p == nil {
			s.mu.Unlock()
			return nil
		}
	}
	members := append([]*wire.Conn(nil), s.members...)
	s.mu.Unlock()

	replies, err := decide(payloads)
	if err == nil && len(replies) != s.o.WorldSize {
		err = fmt.Errorf("round %q has %d replies for %d ranks", m.Round, len(replies), s.o.WorldSize)
	}
	for r, c := range members {
		reply := replyMessage{Round: m.Round}
		if err != nil {
			reply.Error, reply.Hint = err.Error(), hintOf(err)
		} else {
			reply.Payload = replies[r]
		}
		_ = send(c, kindReply, reply)
	}
	if err != nil {
		s.Abort(Failure{Rank: -1, Reason: err.Error(), Advice: hintOf(err)})
	}
	return nil
}

func (s *Server) leave(rank int, m leaveMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := &s.ranks[rank]
	st.Exit, st.Error, st.Seen = m.Exit, m.Error, time.Now()
	st.State = Done
	if s.first == nil {
		s.exit = max(s.exit, m.Exit)
	}
	if m.Error != "" {
		st.State = Failed
		s.failLocked(Failure{Rank: rank, Host: st.Host, State: Failed, Exit: m.Exit, Step: st.Step, Phase: st.Phase,
			Reason: fmt.Sprintf("rank %d on %s: %s", rank, st.Host, m.Error), Advice: m.Hint})
	}
	s.goneLocked(rank)
}

func (s *Server) lost(rank int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := &s.ranks[rank]
	st.State, st.Seen = Lost, time.Now()
	why := "its process was killed or crashed"
	if !errors.Is(err, io.EOF) {
		why = err.Error()
	}
	at := ""
	if st.Phase != "" {
		at = fmt.Sprintf(" at step %d (%s)", st.Step, st.Phase)
	}
	st.Error = why
	s.failLocked(Failure{Rank: rank, Host: st.Host, State: Lost, Step: st.Step, Phase: st.Phase,
		Reason: fmt.Sprintf("rank %d on %s was lost%s: %s", rank, st.Host, at, why)})
	s.goneLocked(rank)
}

func (s *Server) goneLocked(rank int) {
	s.members[rank] = nil
	s.left++
	s.finishLocked()
}

// finishLocked ends the attempt when every rank has ended, or when one has
// failed and all that ever joined have ended.
func (s *Server) finishLocked() {
	missing := s.countLocked(Missing)
	if s.left+missing < s.o.WorldSize || (missing > 0 && s.first == nil) {
		return
	}
	select {
	case <-s.finished:
	default:
		close(s.finished)
	}
}

func (s *Server) failLocked(f Failure) {
	if s.first != nil {
		return
	}
	s.first = &f
	close(s.failing)
	for _, c := range s.connected() {
		go send(c, kindAbort, reasonMessage{f.Reason})
	}
	s.finishLocked()
}

func (s *Server) countLocked(state State) int {
	n := 0
	for _, r := range s.ranks {
		if r.State == state {
			n++
		}
	}
	return n
}

func (s *Server) joinExpired() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var missing []int
	byHost := map[string][]int{}
	var hosts []string
	for _, r := range s.ranks {
		if r.State != Missing {
			continue
		}
		missing = append(missing, r.Rank)
		if len(byHost[r.Host]) == 0 {
			hosts = append(hosts, r.Host)
		}
		byHost[r.Host] = append(byHost[r.Host], r.Rank)
	}
	if len(missing) == 0 {
		return
	}
	text := ""
	for i, h := range hosts {
		if i > 0 {
			text += "; "
		}
		text += formatRanks(byHost[h])
		if h != "" {
			text += " on " + h
		}
	}
	s.failLocked(Failure{Rank: missing[0], Host: s.ranks[missing[0]].Host, State: Missing, Phase: "join",
		Reason: fmt.Sprintf("%d of %d ranks did not join within %s: %s", len(missing), s.o.WorldSize, s.o.JoinTimeout, text),
		Advice: "look at the named hosts: is the node up, can it reach the launching node, does the program start there? network.join_timeout sets how long to wait"})
}
