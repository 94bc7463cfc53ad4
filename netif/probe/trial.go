package probe

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// Time limits of the stages. TCP repeats a lost handshake packet after 1 s, and other lost
// packets after 0.2 s or more.
const (
	connectTime = 1300 * time.Millisecond
	stageTime   = 700 * time.Millisecond
)

// A socketOptions selects what the socket of a trial is bound to.
type socketOptions struct {
	source bool   // bind to the chosen address
	device string // link to bind to; empty for none
	size   int    // bytes of payload; 0 stops after the greeting
}

// retryDelay is the delay between two connections of a trial.
const retryDelay = 20 * time.Millisecond

// try connects to a peer. If the connection ends before an answer arrives, try connects again
// until ctx is done. Any local user of the peer's node can make its listener close an
// unauthenticated connection, so this outcome says nothing about the network.
func (l *Listener) try(ctx context.Context, to netip.AddrPort, peer ID, h socketOptions) Trial {
	start := time.Now()
	t := l.tryOnce(ctx, to, peer, h)
	for t.Stage == StageGreet && t.Outcome == Reset {
		select {
		case <-ctx.Done():
			return t
		case <-time.After(retryDelay):
		}
		again := l.tryOnce(ctx, to, peer, h)
		if ctx.Err() != nil && again.Outcome != OK {
			return t // the last connection had no time to succeed
		}
		t = again
		t.Took = time.Since(start)
	}
	return t
}

// tryOnce makes one connection to a peer, stage by stage.
func (l *Listener) tryOnce(ctx context.Context, to netip.AddrPort, peer ID, h socketOptions) (t Trial) {
	start := time.Now()
	defer func() { t.Took = time.Since(start) }()
	fail := func(err error) Trial {
		t.Outcome, t.Detail = trialOutcome(err), detail(err)
		return t
	}
	t.Stage = StageConnect
	var queue errorQueue
	conn, err := l.dial(ctx, to, h, &queue)
	t.ICMP = queue.read()
	queue.close() // from here, only the connection keeps the socket open
	if err != nil {
		return fail(err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	within := func(stage Stage) error {
		t.Stage = stage
		deadline := time.Now().Add(stageTime)
		if end, set := ctx.Deadline(); set && end.Before(deadline) {
			deadline = end
		}
		return conn.SetDeadline(deadline)
	}

	if err := within(StageGreet); err != nil {
		return fail(err)
	}
	greeting := hello{Version: version, From: l.endpoint.ID, Nonce: newID(), Size: h.size}
	if err := writeFrame(conn, &l.secret, "hello", greeting); err != nil {
		return fail(err)
	}
	var reply welcome
	if err := readFrame(conn, &l.secret, "welcome", &reply, greeting.Nonce[:]); err != nil {
		return fail(err)
	}
	t.Source = reply.Source
	if reply.ID != peer {
		t.Outcome, t.By, t.ByHost = OtherHost, reply.ID, reply.Host
		return t
	}
	if h.size == 0 {
		t.Outcome = OK
		return t
	}

	payload := make([]byte, h.size)
	rand.Read(payload)
	if err := within(StageSend); err != nil {
		return fail(err)
	}
	// The peer sends nothing until it has the whole payload, so there is no deadlock.
	if _, err := conn.Write(payload); err != nil {
		return fail(err)
	}
	mac := make([]byte, macLen)
	if _, err := io.ReadFull(conn, mac); err != nil {
		return fail(err)
	}
	if !hmac.Equal(mac, receipt(&l.secret, greeting.Nonce, reply.Nonce, payload)) {
		t.Outcome = Corrupt
		return t
	}
	if err := within(StageReceive); err != nil {
		return fail(err)
	}
	echo := make([]byte, len(payload))
	if _, err := io.ReadFull(conn, echo); err != nil {
		return fail(err)
	}
	if !bytes.Equal(echo, payload) {
		t.Outcome = Corrupt
		return t
	}
	t.Stage, t.Outcome = StageDone, OK
	return t
}

// errNotAllowed means that the system does not allow binding a socket to a device.
var errNotAllowed = errors.New("binding to the device is not allowed")

func (l *Listener) dial(ctx context.Context, to netip.AddrPort, h socketOptions, queue *errorQueue) (net.Conn, error) {
	d := net.Dialer{Timeout: connectTime}
	d.SetMultipathTCP(false)
	if h.source {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(l.choice.Addr, 0))
	}
	d.Control = func(network, address string, c syscall.RawConn) error {
		if h.device != "" {
			err := bindToDevice(h.device)(network, address, c)
			if errors.Is(err, os.ErrPermission) {
				return errors.Join(errNotAllowed, err)
			}
			if err != nil {
				return err
			}
		}
		return queue.duplicate(c)
	}
	return d.DialContext(ctx, "tcp", to.String())
}

func trialOutcome(err error) Outcome {
	var timeout net.Error
	switch {
	case errors.Is(err, errNotAllowed):
		return NotAllowed
	case errors.Is(err, errUnauthenticated):
		return Unauthenticated
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, net.ErrClosed):
		return TimedOut // a socket is closed during a trial only after its timeout
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return Reset
	}
	return outcomeOf(err)
}

// detail returns the system's error text without addresses, which the result already has.
func detail(err error) string {
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	return err.Error()
}
