package mesh

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// socket is one connection to a rank with its send queue.
type socket struct {
	mu    sync.Mutex
	more  sync.Cond
	queue []outgoing
	conn  *connection // nil until it is connected
	ended error       // reason why nothing is sent anymore
}

// connection is an established connection with the state of both directions.
type connection struct {
	net.Conn
	out, in stream
}

type outgoing struct {
	frame frame
	b     []byte
	t     *Transfer
}

func newSocket() *socket {
	s := &socket{}
	s.more.L = &s.mu
	return s
}

// put appends to the queue.
func (s *socket) put(o outgoing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		o.t.err = s.ended
		close(o.t.done)
		return
	}
	s.queue = append(s.queue, o)
	s.more.Signal()
}

// take waits for the next message to send. It returns false if the socket has ended.
func (s *socket) take() (outgoing, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) == 0 && s.ended == nil {
		s.more.Wait()
	}
	if s.ended != nil {
		return outgoing{}, false
	}
	o := s.queue[0]
	s.queue = s.queue[1:]
	return o, true
}

// end drops the queue and closes the connection.
func (s *socket) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == nil {
		s.ended = err
	}
	for _, o := range s.queue {
		o.t.err = s.ended
		close(o.t.done)
	}
	s.queue = nil
	if s.conn != nil {
		s.conn.Close()
	}
	s.more.Broadcast()
}

// attach makes conn the socket's connection. It returns false if the socket already has one or has
// ended.
func (s *socket) attach(conn *connection) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil || s.ended != nil {
		return false
	}
	s.conn = conn
	return true
}

// write sends queued messages until the socket ends. A message that it cannot send stays in the
// queue, because only the reader or the end of the socket determines why the connection failed.
func (s *socket) write() error {
	var head [taggedHead]byte
	var parts [2][]byte
	var buffers net.Buffers
	for {
		o, ok := s.take()
		if !ok {
			return nil
		}
		parts = [...][]byte{s.conn.out.encode(&o.frame, &head, o.b), o.b}
		buffers = parts[:]
		err := writeFrame(s.conn, &buffers)
		if err != nil {
			s.put(o)
			return err
		}
		close(o.t.done)
	}
}

// readBuffer holds short messages completely. Longer messages are read directly into their buffers.
const readBuffer = 4 << 10

// read receives messages until the connection ends.
func (n *network) read(peer int, s *socket) error {
	r := bufio.NewReaderSize(s.conn, readBuffer)
	var f frame
	var t *Transfer
	var reason []byte
	buffer := func(f *frame) (b []byte, err error) {
		switch f.class {
		case classAbort:
			reason = make([]byte, f.size)
			return reason, nil
		case classQuery:
			return nil, nil
		}
		t, b, err = n.arrive(peer, f.Head, f.size)
		return b, err
	}
	for {
		if err := s.conn.in.read(r, &f, buffer); err != nil {
			return err
		}
		switch f.class {
		case classAbort:
			return &PeerError{int(f.Root), &RemoteAbort{int(f.Step), string(reason)}}
		case classQuery:
			n.reply(peer, s, &f)
		default:
			n.complete(t)
		}
	}
}

// serve reads and writes a connection until it ends, then reports the cause.
func (n *network) serve(p *peer, s *socket) {
	n.working.Add(2)
	go func() {
		defer n.working.Done()
		if err := s.write(); err != nil && !errors.Is(err, net.ErrClosed) {
			// The last messages of the peer must still be read: they may contain the cause.
			time.AfterFunc(abortTimeout, func() { n.dropPeer(p, err) })
		}
	}()
	go func() {
		defer n.working.Done()
		err := n.read(p.rank, s)
		var remoteErr *RemoteAbort
		var peerErr *PeerError
		var mismatchErr *Mismatch
		var integrityErr integrityError
		switch {
		case errors.As(err, &remoteErr):
			p.end(n.fail(err))
			return
		case errors.As(err, &integrityErr):
			err = &PeerError{p.rank, err}
			fallthrough
		case errors.As(err, &peerErr) || errors.As(err, &mismatchErr):
			failed := n.fail(err)
			// The peer must be notified: it sees only a closed connection.
			time.AfterFunc(abortTimeout, func() { p.end(failed) })
			return
		case errors.Is(err, net.ErrClosed):
			return // this rank has ended the socket
		case p.ended.Add(1) < p.ready.Load():
			// The other sockets may still hold data that was sent earlier, or the cause.
			if !errors.Is(err, io.EOF) {
				time.AfterFunc(abortTimeout, func() { n.dropPeer(p, err) })
			}
			return
		case errors.Is(err, io.EOF):
			err = errConnectionClosed
		}
		n.dropPeer(p, err)
	}()
}

// end drops the queues of a peer and closes its connections.
func (p *peer) end(err error) {
	for _, s := range p.sockets {
		s.end(err)
	}
}

// abortTimeout limits the time to send or receive the reason of a failure. It is a variable for
// tests on busy machines.
var abortTimeout = 500 * time.Millisecond

// isSettled reports whether the socket has a connection or has ended.
func (s *socket) isSettled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn != nil || s.ended != nil
}

// dial connects to a peer. It retries until ctx is done. It returns nil if no connection is needed
// anymore.
func (n *network) dial(ctx context.Context, p *peer, index int) (*connection, error) {
	d := net.Dialer{Control: disablePacing}
	if n.o.Source != nil {
		d.LocalAddr = &net.TCPAddr{IP: n.o.Source}
	}
	for {
		if p.sockets[index].isSettled() {
			return nil, nil
		}
		raw, err := d.DialContext(ctx, "tcp", n.o.Addrs[p.rank])
		if err == nil {
			var conn *connection
			if conn, err = n.handshake(ctx, raw, p.rank, index); err == nil {
				return conn, nil
			}
		}
		select {
		case <-ctx.Done():
			cause := context.Cause(ctx)
			if !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, net.ErrClosed) {
				cause = fmt.Errorf("%w: %w", cause, err)
			}
			return nil, cause
		case <-time.After(redial):
		}
	}
}

const redial = 20 * time.Millisecond
