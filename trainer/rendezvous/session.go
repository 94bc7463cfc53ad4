package rendezvous

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// ErrRefused means that the server rejected this rank.
var ErrRefused = errors.New("refused by the launcher")

// ErrAborted is the cause of the session's context if the server ended the attempt.
var ErrAborted = errors.New("the job is being ended")

// ErrLauncherLost is the cause of the session's context if the server is gone.
var ErrLauncherLost = errors.New("the launcher is gone")

// A Session is a rank's connection to the server. It lasts as long as the rank.
type Session struct {
	world  int
	conn   *wire.Conn
	ctx    context.Context
	cancel context.CancelCauseFunc
	stop   chan struct{}

	mu      sync.Mutex
	once    sync.Once
	pending map[string]chan reply
	reason  string
	stacks  bool
	leaving bool

	unhandled bool // see NoteUnhandledStop

	progress func() Progress
}

// A reply is the result of a round.
type reply struct {
	payload []byte
	err     error
}

// Join connects to the address in addrs ("host:port") at which this attempt's server
// authenticates, and joins as id. It tries all addresses concurrently, and repeats until ctx
// is done. It returns [ErrRefused] if the server rejects this rank.
func Join(ctx context.Context, addrs []string, secret wire.Secret, id Identity) (*Session, error) {
	return join(ctx, addrs, wire.Key{Secret: secret, Label: label}, id)
}

func join(ctx context.Context, addrs []string, key wire.Key, id Identity) (*Session, error) {
	conn, err := joinOnce(ctx, addrs, key, id)
	// The server may replace a connection before it has read the join, if many peers connect.
	for errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(reconnectDelay):
		}
		conn, err = joinOnce(ctx, addrs, key, id)
	}
	if err != nil {
		return nil, err
	}
	s := &Session{world: id.WorldSize, conn: conn, stop: make(chan struct{}), pending: map[string]chan reply{},
		progress: func() Progress { return Progress{} }}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	go s.read()
	go s.sendHeartbeats()
	return s, nil
}

// joinOnce connects and joins. It returns the connection after the server's welcome.
func joinOnce(ctx context.Context, addrs []string, key wire.Key, id Identity) (*wire.Conn, error) {
	conn, err := connect(ctx, addrs, key)
	if err != nil {
		return nil, err
	}
	if err := send(conn, kindJoin, id); err != nil {
		conn.Close()
		return nil, fmt.Errorf("join as rank %d: %w", id.Rank, err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	kind, payload, err := conn.ReadFrame()
	if !stop() {
		err = context.Cause(ctx)
	}
	if err == nil && kind == kindRefused {
		var m reasonMessage
		_ = json.Unmarshal(payload, &m)
		err = fmt.Errorf("%w: %s", ErrRefused, m.Reason)
	} else if err == nil && kind != kindWelcome {
		err = fmt.Errorf("unexpected message of kind %d", kind)
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("join as rank %d: %w", id.Rank, err)
	}
	return conn, nil
}

// reconnectDelay is the delay between two connection attempts to the server.
const reconnectDelay = 200 * time.Millisecond

// ReportProblem tells the server that rank id cannot start, and why. The attempt then fails with that
// error and its hint. Without a report, the server would wait for the rank until the join
// timeout. key is the server's ReportKey.
func ReportProblem(ctx context.Context, addrs []string, key wire.Secret, id Identity, problem error) error {
	// JSON may need six bytes for one.
	id.Problem, id.Hint = shorten(problem.Error(), maxReport/10), shorten(hints.Of(problem), maxReport/20)
	s, err := join(ctx, addrs, wire.Key{Secret: key, Label: reportLabel}, id)
	switch {
	case errors.Is(err, ErrRefused):
		return nil // the server received the report
	case err == nil:
		return s.Leave(1, problem)
	}
	return err
}

// maxFailureText is the maximum size in bytes of an error, and of a hint, in a leave message. A CSV
// field in an error can have 16 MiB.
const maxFailureText = 256 << 10

// shorten cuts a text to at most limit bytes.
func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	const mark = "..."
	return strings.ToValidUTF8(text[:limit-len(mark)], "") + mark
}

// headStart is the delay before the next address is tried (RFC 8305, section 5). The caller
// provides the addresses in order of preference.
const headStart = 100 * time.Millisecond

// connect tries all addresses, in repeated rounds, each address headStart after the previous
// one. A wrong address, such as a bridge with the same address on every node, fails the
// handshake and does no harm.
func connect(ctx context.Context, addrs []string, key wire.Key) (*wire.Conn, error) {
	if len(addrs) == 0 {
		return nil, errors.New("join: no address of the launcher is known")
	}
	var err error
	for {
		conn, latest := connectOnce(ctx, addrs, key)
		if latest == nil {
			return conn, nil
		}
		if err == nil || ctx.Err() == nil { // the end of ctx is not the reason
			err = latest
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the launcher cannot be reached at %s: %w", strings.Join(addrs, ", "), err)
		case <-time.After(reconnectDelay):
		}
	}
}

// connectOnce tries each address once, and returns the first connection with a successful handshake.
func connectOnce(ctx context.Context, addrs []string, key wire.Key) (*wire.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*wire.HandshakeTimeout)
	defer cancel()
	type result struct {
		conn *wire.Conn
		err  error
	}
	results := make(chan result)
	for i, addr := range addrs {
		go func() {
			select {
			case <-time.After(time.Duration(i) * headStart):
			case <-ctx.Done():
			}
			var d net.Dialer
			raw, err := d.DialContext(ctx, "tcp", addr)
			var conn *wire.Conn
			if err == nil {
				conn, err = wire.Client(raw, key.Secret, key.Label)
				if err != nil {
					err = fmt.Errorf("%s: %w", addr, err)
				}
			}
			select {
			case results <- result{conn, err}:
			case <-ctx.Done():
				if conn != nil {
					conn.Close()
				}
			}
		}()
	}
	var err error
	add := func(other error) {
		if err != nil {
			other = fmt.Errorf("%w; %w", err, other) // on one line, unlike errors.Join
		}
		err = other
	}
	for range addrs {
		select {
		case r := <-results:
			if r.err == nil {
				return r.conn, nil
			}
			add(r.err)
		case <-ctx.Done():
			add(ctx.Err())
			return nil, err
		}
	}
	return nil, err
}

// Context returns a context that is done when the attempt must end immediately, or after Leave. Its
// cause is [ErrAborted] with the reason, [ErrLauncherLost], or [context.Canceled] after Leave.
func (s *Session) Context() context.Context { return s.ctx }

// Stacks reports whether the attempt ends because of a stall, so that this process must
// write its stack traces to the log. It is valid after Context is done.
func (s *Session) Stacks() bool { return s.stacks }

// Stopping returns a channel that is closed when the launcher requests a save and stop.
func (s *Session) Stopping() <-chan struct{} { return s.stop }

// StopReason returns the launcher's reason. It is valid after Stopping is closed.
func (s *Session) StopReason() string { return s.reason }

// Exchange sends payload to a round. It returns this rank's reply after every rank has
// contributed and the server has decided. Each rank can contribute to a round only once, by
// Exchange or Contribute.
func (s *Session) Exchange(ctx context.Context, round string, payload []byte) ([]byte, error) {
	answer := make(chan reply, 1)
	s.mu.Lock()
	s.pending[round] = answer
	s.mu.Unlock()
	if err := sendRound(s.conn, kindExchange, round, payload); err != nil {
		return nil, fmt.Errorf("exchange %q: %w", round, err)
	}
	select {
	case m := <-answer:
		return m.payload, m.err
	case <-s.ctx.Done():
		// The reply to a failed round and the end of the attempt race.
		select {
		case m := <-answer:
			return m.payload, m.err
		default:
		}
		return nil, context.Cause(s.ctx)
	case <-ctx.Done():
		return nil, fmt.Errorf("exchange %q: %w", round, context.Cause(ctx))
	}
}

// Contribute sends payload to a round whose reply this rank does not need. It does not wait for
// other ranks.
func (s *Session) Contribute(round string, payload []byte) error {
	if err := sendRound(s.conn, kindExchange, round, payload); err != nil {
		return fmt.Errorf("contribute to %q: %w", round, err)
	}
	return nil
}

// answer passes the result of a round to the goroutine that waits for it.
func (s *Session) answer(round string, r reply) {
	s.mu.Lock()
	answer := s.pending[round]
	delete(s.pending, round)
	s.mu.Unlock()
	if answer != nil {
		answer <- r
	}
}

// Notify sends a one-line notice for the user to the server. If a rank fails or is lost later,
// the reason includes the notice.
func (s *Session) Notify(text string) error {
	return send(s.conn, kindNotice, noticeMessage{text})
}

// ReportWorkerFailure reports that a worker of this rank's program failed, after the given number
// of restarts of all workers. If a rank fails later, the rank whose worker failed first is the
// cause. The order of failures is not enough: a launcher such as torchrun may end before the
// launcher on the node of the failed worker.
func (s *Session) ReportWorkerFailure(restarts int, text string) error {
	return send(s.conn, kindWorkerFailed, workerFailedMessage{restarts, text})
}

// NoteUnhandledStop makes [Session.Leave] report that no process of the rank's program handled
// the stop signal.
func (s *Session) NoteUnhandledStop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unhandled = true
}

// Leave ends the session. exit is the exit code of this process. If failure is not nil, it
// ends the attempt and is sent to every other rank. Three optional methods of failure change the
// cause:
//
//   - FailedRank() (rank int, ok bool) returns the rank that this rank waited for without success.
//     The attempt ends as if the blamed rank had been lost.
//   - Suspects() []int returns ranks of which at least one is faulty; it may not be the rank
//     that reports. The failure is about the suspect if there is only one, and otherwise about
//     no rank.
//   - PortTaken() bool returns whether another process has taken the port of the program. Such a
//     failure replaces an earlier failure of a rank as the cause.
//
// A failure that wraps [ErrAborted] is a consequence of the end of the attempt and never its cause.
func (s *Session) Leave(exit int, failure error) error {
	m := leaveMessage{Exit: exit}
	if failure != nil {
		// A longer message than the server accepts would look like a lost rank.
		m.Error, m.Hint = shorten(failure.Error(), maxFailureText), shorten(hints.Of(failure), maxFailureText)
		m.Ended = errors.Is(failure, ErrAborted)
		var of interface{ FailedRank() (rank int, ok bool) }
		if errors.As(failure, &of) {
			if rank, ok := of.FailedRank(); ok {
				m.Blames = &rank
			}
		}
		var among interface{ Suspects() []int }
		if errors.As(failure, &among) {
			m.Suspects = among.Suspects()
		}
		var port interface{ PortTaken() bool }
		m.PortTaken = errors.As(failure, &port) && port.PortTaken()
	}
	s.mu.Lock()
	s.leaving = true
	m.Unhandled = s.unhandled
	progress := s.progress
	s.mu.Unlock()
	// Send the current progress, which may be newer than the last heartbeat.
	_ = send(s.conn, kindBeat, progress())
	err := send(s.conn, kindLeave, m)
	s.conn.Close()
	s.cancel(context.Canceled)
	return err
}

// read receives messages until the connection ends. An invalid message counts as the loss of the
// launcher.
func (s *Session) read() {
	defer s.conn.Close()
	for {
		kind, payload, err := s.conn.ReadFrame()
		if err != nil {
			s.mu.Lock()
			leaving := s.leaving
			s.mu.Unlock()
			if !leaving {
				s.cancel(fmt.Errorf("%w: %w", ErrLauncherLost, err))
			}
			return
		}
		var m reasonMessage
		switch kind {
		case kindReply:
			var round string
			if round, payload, err = cutRound(payload); err == nil {
				s.answer(round, reply{payload: payload})
			}
		case kindFailed:
			var f failedMessage
			if err = json.Unmarshal(payload, &f); err == nil {
				s.answer(f.Round, reply{err: hints.Add(errors.New(f.Error), f.Hint)})
			}
		case kindStop:
			if err = json.Unmarshal(payload, &m); err == nil {
				s.once.Do(func() { s.reason = m.Reason; close(s.stop) })
			}
		case kindAbort:
			if err = json.Unmarshal(payload, &m); err == nil {
				s.stacks = m.Stacks
				s.cancel(fmt.Errorf("%w: %s", ErrAborted, m.Reason))
			}
		default:
			err = fmt.Errorf("message of unknown kind %d", kind)
		}
		if err != nil {
			s.cancel(fmt.Errorf("%w: %w", ErrLauncherLost, err))
			return
		}
	}
}
