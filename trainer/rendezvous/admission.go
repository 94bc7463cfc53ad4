package rendezvous

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

func (s *Server) accept() {
	for {
		c, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Probably out of file descriptors: wait until some are closed.
			time.Sleep(50 * time.Millisecond)
			continue
		}
		leave := s.unauthenticated.Enter(c)
		s.handlers.Go(func() { s.handle(c, leave) })
	}
}

// handle serves a connection until the server closes. It calls leave when the peer no longer counts as
// unauthenticated.
func (s *Server) handle(raw net.Conn, leave func() bool) {
	defer context.AfterFunc(s.ctx, func() { raw.Close() })()
	from, _, _ := net.SplitHostPort(raw.RemoteAddr().String())
	c, id, onlyReport, err := s.admit(raw, leave)
	if err != nil {
		// A peer that disconnects silently is a rank that reached this server by another
		// address, or is not a rank.
		if !errors.Is(err, wire.ErrNotAuthentic) {
			return
		}
		s.warnUnauthenticated(from, err)
		return
	}
	defer c.Close()
	if onlyReport && !s.mayReport(id) || !s.addRank(c, id) {
		return
	}
	s.follow(c, id.Rank)
}

// maxReport is the maximum size of a report from a peer with only the report key, in bytes.
// [ReportProblem] shortens its texts to fit.
const maxReport = 64 << 10

// admit authenticates the peer and reads its identity. onlyReport means that the peer has only
// the report key. Such a peer counts as unauthenticated until its report arrives, because
// anyone who reads the network may have the key.
func (s *Server) admit(raw net.Conn, leave func() bool) (c *wire.Conn, id Identity, onlyReport bool, err error) {
	keys := []wire.Key{{Secret: s.o.Secret, Label: label}}
	if s.o.ReportKey != (wire.Secret{}) {
		keys = append(keys, wire.Key{Secret: s.o.ReportKey, Label: reportLabel})
	}
	c, which, err := wire.ServerAny(raw, keys...)
	onlyReport = which > 0
	limit := maxReport
	if err != nil || !onlyReport {
		limit = wire.MaxFrame
		if evicted := !leave(); evicted && err == nil {
			c.Close()
			err = net.ErrClosed // the rank will connect again
		}
	}
	if err != nil {
		return nil, id, onlyReport, err
	}
	if err := c.SetReadDeadline(time.Now().Add(wire.HandshakeTimeout)); err != nil {
		leave()
		c.Close()
		return nil, id, onlyReport, err
	}
	kind, payload, err := c.ReadFrameWithin(limit)
	leave()
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
		return nil, id, onlyReport, err
	}
	return c, id, onlyReport, nil
}

// maxPeerWarnings limits the warnings about unknown peers. A local user can connect from
// millions of loopback addresses.
const maxPeerWarnings = 8

// warnUnauthenticated warns once per address about a dropped connection, for at most
// maxPeerWarnings addresses.
func (s *Server) warnUnauthenticated(from string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.o.Warn == nil || s.warned[from] || len(s.warned) == maxPeerWarnings {
		return
	}
	s.warned[from] = true
	text := fmt.Sprintf("a connection from %s is not a rank of this job and was dropped: %v", from, err)
	if len(s.warned) == maxPeerWarnings {
		text += "; connections from other addresses are dropped without a warning from now on"
	}
	s.o.Warn(text)
}

// mayReport reports whether a peer with only the report key is a rank that has not joined and
// cannot start. The server accepts nothing else from such a peer, because the key is less
// secret than the attempt's secret.
func (s *Server) mayReport(id Identity) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return id.Problem != "" && id.WorldSize == s.o.WorldSize && id.Rank >= 0 && id.Rank < s.o.WorldSize && s.ranks[id.Rank].State == Missing
}

// addRank adds an authenticated rank and reports whether it did. If it must reject the rank, it
// sends the reason and ends the attempt.
func (s *Server) addRank(c *wire.Conn, id Identity) bool {
	s.mu.Lock()
	reason := s.rejectionReason(id)
	if reason == "" {
		st := &s.ranks[id.Rank]
		st.State, st.Host, st.PID, st.Seen = Joined, id.Host, id.PID, time.Now()
		s.missing--
		if s.o.Program == "" {
			s.o.Program = id.Program
		}
		if s.o.Spec == "" {
			s.o.Spec = id.Spec
		}
	}
	s.mu.Unlock()
	if reason != "" {
		_ = send(c, kindRefused, reasonMessage{Reason: reason})
		// The attempt cannot wait for a rank of this job that the server must reject.
		f := Failure{Rank: id.Rank, Host: id.Host, Reason: reason}
		if id.Problem != "" {
			f.State, f.Exit, f.Phase, f.Advice = Failed, 1, "start", id.Hint
		}
		s.Abort(f)
		return false
	}
	// The rank must receive the welcome before any other message.
	err := send(c, kindWelcome, struct{}{})
	s.mu.Lock()
	if s.ctx.Err() != nil { // closed while welcome was sent
		s.mu.Unlock()
		return false
	}
	s.members[id.Rank] = c
	if s.missing == 0 && !s.complete {
		s.complete = true
		s.joinTick.Stop()
		// No more ranks can join, so the kernel rejects later connections.
		s.listener.Close()
		close(s.joined)
	}
	stopping, stopReason, first := s.stopping, s.stopReason, s.first
	s.mu.Unlock()
	if err == nil && first != nil {
		_ = send(c, kindAbort, reasonMessage{Reason: first.Reason})
	} else if err == nil && stopping {
		_ = send(c, kindStop, reasonMessage{Reason: stopReason})
	}
	return true
}

// rejectionReason returns why the server must reject a rank, or "". If the rank reports a problem,
// rejectionReason records that it failed. The caller holds s.mu.
func (s *Server) rejectionReason(id Identity) string {
	who := fmt.Sprintf("rank %d on %s", id.Rank, id.Host)
	switch {
	case id.WorldSize != s.o.WorldSize:
		return fmt.Sprintf("%s was started for %d ranks, but this attempt has %d", who, id.WorldSize, s.o.WorldSize)
	case id.Rank < 0 || id.Rank >= s.o.WorldSize:
		return fmt.Sprintf("%s is outside 0..%d", who, s.o.WorldSize-1)
	case id.Problem != "" && s.ranks[id.Rank].State == Missing:
		st := &s.ranks[id.Rank]
		st.State, st.Host, st.PID, st.Exit, st.Error, st.Seen = Failed, id.Host, id.PID, 1, id.Problem, time.Now()
		return fmt.Sprintf("%s: %s", who, id.Problem)
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
