package rendezvous

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/lobby"
	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// maxUnauthenticated is the maximum number of connections in their handshake, in addition to one per
// rank. A new connection replaces an older one, see [lobby.Lobby].
const maxUnauthenticated = 256

// ServerOptions describe the attempt that a [Server] serves.
type ServerOptions struct {
	WorldSize   int
	Secret      wire.Secret
	JoinTimeout time.Duration
	// ReportKey is the key of [ReportProblem]. It only allows a rank that cannot read the secret to
	// report this. If it is zero, no rank can report.
	ReportKey wire.Secret
	// Program and Spec are the digests that every rank must send. If they are empty, the first
	// rank that joins sets them.
	Program, Spec string
	// Silence is the time without a message after which a rank counts as lost. Stall is the
	// time without progress of any rank after which the attempt fails. 0 disables the check.
	Silence, Stall time.Duration
	// Host returns the host on which a rank was started, for the message about a rank that
	// does not join. It may be nil.
	Host func(rank int) string
	// Rounds holds the decision function of each round.
	Rounds map[string]Decide
	// Warn receives events that do not end the attempt. It must not call the server. It may be nil.
	Warn func(message string)
}

// A Server is the rendezvous of one attempt.
type Server struct {
	o               ServerOptions
	listener        net.Listener
	joinTick        *time.Timer
	unauthenticated *lobby.Lobby
	ctx             context.Context // done when the server is closed
	cancel          context.CancelFunc

	mu         sync.Mutex
	ranks      []RankStatus
	members    []*wire.Conn
	activities []activity
	stack      bool // request stack traces when the attempt ends
	rounds     map[string]*round
	missing    int  // ranks that have not joined
	left       int  // ranks that joined and ended
	complete   bool // every rank has joined
	first      *Failure
	exit       int
	stopping   bool
	stopReason string
	joined     chan struct{}
	failing    chan struct{}
	finished   chan struct{}
	handlers   sync.WaitGroup  // includes accept
	warned     map[string]bool // addresses of unknown peers with a warning
	notices    []string        // the most recent ones, each with its host
	worker     *failedWorker
}

// Serve starts to accept ranks on listener. The server owns the listener and closes it when
// all ranks have joined.
func Serve(listener net.Listener, o ServerOptions) *Server {
	s := &Server{
		o: o, listener: listener, unauthenticated: lobby.New(o.WorldSize + maxUnauthenticated),
		ranks:      make([]RankStatus, o.WorldSize),
		members:    make([]*wire.Conn, o.WorldSize),
		activities: make([]activity, o.WorldSize),
		rounds:     map[string]*round{},
		missing:    o.WorldSize,
		joined:     make(chan struct{}),
		failing:    make(chan struct{}),
		finished:   make(chan struct{}),
		warned:     map[string]bool{},
	}
	for r := range s.ranks {
		s.ranks[r] = RankStatus{Rank: r, State: Missing}
		if o.Host != nil {
			s.ranks[r].Host = o.Host(r)
		}
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.joinTick = time.AfterFunc(o.JoinTimeout, s.joinExpired)
	s.handlers.Go(s.accept)
	if o.Silence > 0 || o.Stall > 0 {
		go s.watch()
	}
	return s
}

// Port returns the TCP port for ranks. It accepts connections until all ranks have joined.
func (s *Server) Port() int { return s.listener.Addr().(*net.TCPAddr).Port }

// Wait returns when every rank has ended, or ctx is done. After a failure, it does not wait for
// ranks that have not joined.
func (s *Server) Wait(ctx context.Context) (Outcome, error) {
	select {
	case <-s.finished:
		return s.Outcome(), nil
	case <-ctx.Done():
		return s.Outcome(), context.Cause(ctx)
	}
}

// Joined returns a channel that is closed when every rank has joined.
func (s *Server) Joined() <-chan struct{} { return s.joined }

// Failing returns a channel that is closed at the first failure, see [Server.Outcome].
func (s *Server) Failing() <-chan struct{} { return s.failing }

// Outcome returns the current outcome.
func (s *Server) Outcome() Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Outcome{Ranks: slices.Clone(s.ranks), First: s.first, Exit: s.exit}
}

// Stop requests every rank to save and leave, including ranks that join later.
func (s *Server) Stop(reason string) {
	s.mu.Lock()
	s.stopping, s.stopReason = true, reason
	members := s.connected()
	s.mu.Unlock()
	for _, c := range members {
		// If the send fails, the reader of the rank detects its loss.
		go send(c, kindStop, reasonMessage{Reason: reason})
	}
}

// Abort ends the attempt. f becomes the first failure unless there is one, and every connected
// rank receives the request to end immediately.
func (s *Server) Abort(f Failure) {
	s.mu.Lock()
	s.failLocked(f)
	s.mu.Unlock()
}

// Close closes the listener and every connection. Ranks that are still connected treat this as
// the loss of their launcher.
func (s *Server) Close() error {
	err := s.listener.Close()
	s.joinTick.Stop()
	s.cancel()
	s.handlers.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil // all ranks had joined
	}
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

// follow serves one rank until it leaves or is lost.
func (s *Server) follow(c *wire.Conn, rank int) {
	for {
		kind, payload, err := c.ReadFrame()
		if err != nil {
			s.recordLoss(rank, err)
			return
		}
		s.recordMessage(rank)
		switch kind {
		case kindExchange:
			var round string
			if round, payload, err = cutRound(payload); err == nil {
				err = s.exchange(rank, round, payload)
			}
		case kindBeat:
			var p Progress
			if err = json.Unmarshal(payload, &p); err == nil {
				s.recordProgress(rank, p)
			}
		case kindNotice:
			var m noticeMessage
			if err = json.Unmarshal(payload, &m); err == nil {
				s.notice(rank, m.Text)
			}
		case kindWorkerFailed:
			var m workerFailedMessage
			if err = json.Unmarshal(payload, &m); err == nil {
				s.workerFailed(rank, m)
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
			s.recordLoss(rank, err)
			return
		}
	}
}
