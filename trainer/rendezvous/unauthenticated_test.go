package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// TestUnauthenticatedPeersDoNoHarm checks that unauthenticated connections of any kind do not
// disturb an attempt, and are reported once.
func TestUnauthenticatedPeersDoNoHarm(t *testing.T) {
	var warnings []string
	a := start(t, 2, func(o *ServerOptions) { o.Warn = func(m string) { warnings = append(warnings, m) } })
	for range 50 {
		c, err := net.Dial("tcp", a.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"+strings.Repeat("x", 200))
	}
	silent, err := net.Dial("tcp", a.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	other := a
	other.secret[0] ^= 1
	if _, err := connectOnce(t.Context(), []string{a.addr}, wire.Key{Secret: other.secret, Label: label}); !errors.Is(err, wire.ErrNotAuthentic) {
		t.Errorf("wrong secret: %v", err)
	}
	for _, s := range a.joinAll(t, 2) {
		if err := s.Leave(0, nil); err != nil {
			t.Error(err)
		}
	}
	if o := wait(t, a); o.First != nil {
		t.Errorf("disturbed: %+v", o.First)
	}
	if err := a.Close(); err != nil { // waits for the handlers
		t.Fatal(err)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "127.0.0.1 is not a rank") {
		t.Errorf("warnings: %q", warnings)
	}
}

// TestSilentConnectionsDoNotLockOutRanks checks that silent connections that fill the lobby do not
// lock out the ranks, even if they stay open.
func TestSilentConnectionsDoNotLockOutRanks(t *testing.T) {
	const ranks = 8
	a := start(t, ranks, nil)
	for range ranks + maxUnauthenticated {
		c, err := net.Dial("tcp", a.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	for range ranks + maxUnauthenticated {
		a.unauthenticated.Enter(silentConn{})
	}
	for _, s := range a.joinAll(t, ranks) {
		if err := s.Leave(0, nil); err != nil {
			t.Error(err)
		}
	}
	if o := wait(t, a); o.First != nil {
		t.Errorf("disturbed: %+v", o.First)
	}
}

// silentConn is an unauthenticated connection that sends nothing and does not close.
type silentConn struct{ net.Conn }

func (silentConn) Close() error         { return nil }
func (silentConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// TestListenerClosesOnceAllHaveJoined checks that the server stops listening when all ranks have
// joined, so that unauthenticated connections cost nothing.
func TestListenerClosesOnceAllHaveJoined(t *testing.T) {
	a := start(t, 2, nil)
	sessions := a.joinAll(t, 2)
	<-a.Joined()
	if c, err := net.Dial("tcp", a.addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connected: %v, %v", c, err)
	}
	for _, s := range sessions {
		s.Leave(0, nil)
	}
	if o := wait(t, a); o.First != nil {
		t.Errorf("disturbed: %+v", o.First)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

// TestCloseDoesNotWaitForSilentPeers checks that Close closes connections in their handshake, instead of
// waiting for their deadline.
func TestCloseDoesNotWaitForSilentPeers(t *testing.T) {
	a := start(t, 1, nil)
	silent, err := net.Dial("tcp", a.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for a.unauthenticated.Len() == 0 {
		time.Sleep(time.Millisecond)
	}
	began := time.Now()
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > wire.HandshakeTimeout/2 {
		t.Errorf("took %v", took)
	}
}

// TestJoinWithoutAnswer checks that Join returns the cause of its context if the server does not answer.
func TestJoinWithoutAnswer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the job is stopped")
	secret := wire.Secret{3}
	go func() {
		raw, err := l.Accept()
		if err != nil {
			return
		}
		defer raw.Close()
		if c, err := wire.Server(raw, secret, label); err == nil {
			_, _, _ = c.ReadFrame()
			cancel(cause)
			_, _, _ = c.ReadFrame() // until the rank closes the connection
		}
	}()
	if _, err := Join(ctx, []string{l.Addr().String()}, secret, Identity{WorldSize: 1}); !errors.Is(err, cause) {
		t.Errorf("got %v, want %v", err, cause)
	}
}

// TestUnreachableLauncherIsOneLine checks that the error of several addresses is one line.
func TestUnreachableLauncherIsOneLine(t *testing.T) {
	_, err := connectOnce(t.Context(), []string{"127.0.0.1:1", "127.0.0.2:1"}, wire.Key{})
	for _, want := range []string{"127.0.0.1:1: ", "127.0.0.2:1: "} {
		if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, want %q in one line", err, want)
		}
	}
}

// TestConnectKeepsReason checks that the error of connect is the reason of the last complete attempt,
// even if the context ends during a later one.
func TestConnectKeepsReason(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			if n > 0 {
				cancel()
				continue
			}
			fmt.Fprint(c, strings.Repeat("x", 200))
		}
	}()
	if _, err := connect(ctx, []string{l.Addr().String()}, wire.Key{}); !errors.Is(err, wire.ErrNotAuthentic) {
		t.Errorf("got %v, want %v", err, wire.ErrNotAuthentic)
	}
}

// TestWrongAddressAmongValidOnes checks that Join tries all addresses. One of them may be a bridge
// that every node has, with a different service behind it.
func TestWrongAddressAmongValidOnes(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(c, "220 mail ready, and a line long enough to fill the greeting of a handshake")
		}
	}()
	a := start(t, 1, nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := Join(ctx, []string{"127.0.0.1:1", l.Addr().String(), a.addr}, a.secret, Identity{Rank: 0, WorldSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	s.Leave(0, nil)
}

// TestUnauthenticatedWarningsAreLimited checks that a local user who connects from many loopback
// addresses does not fill the log.
func TestUnauthenticatedWarningsAreLimited(t *testing.T) {
	warned := make(chan string, 100)
	a := start(t, 1, func(o *ServerOptions) { o.Warn = func(m string) { warned <- m } })
	for i := range 3 * maxPeerWarnings {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(i+1))}}
		c, err := d.Dial("tcp", a.addr)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(c, strings.Repeat("x", 200))
		_, _ = io.Copy(io.Discard, c) // until the server closes it
		c.Close()
	}
	for _, s := range a.joinAll(t, 1) {
		s.Leave(0, nil)
	}
	if o := wait(t, a); o.First != nil {
		t.Errorf("disturbed: %+v", o.First)
	}
	if err := a.Close(); err != nil { // waits for the handlers
		t.Fatal(err)
	}
	if len(warned) != maxPeerWarnings {
		t.Errorf("%d warnings, want %d", len(warned), maxPeerWarnings)
	}
	for len(warned) > 1 {
		<-warned
	}
	if last := <-warned; !strings.Contains(last, "without a warning") {
		t.Errorf("last warning %q", last)
	}
}

// TestReportKeyLimitsMemory checks that a peer that has only the report key cannot make the server
// allocate the largest frame, and cannot hold more connections than other unauthenticated peers.
func TestReportKeyLimitsMemory(t *testing.T) {
	key := wire.Secret{9}
	a := start(t, 1, func(o *ServerOptions) { o.ReportKey = key })
	connect := func() *wire.Conn {
		raw, err := net.Dial("tcp", a.addr)
		if err != nil {
			t.Fatal(err)
		}
		c, err := wire.Client(raw, key, reportLabel)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	report := func(c *wire.Conn, problem string) {
		defer c.Close()
		_ = send(c, kindJoin, Identity{WorldSize: 1, Problem: problem})
		if kind, _, err := c.ReadFrame(); err == nil {
			t.Errorf("answered a report of %d bytes with a message of kind %d", len(problem), kind)
		}
	}
	silent := connect()
	for range 1 + maxUnauthenticated { // these replace it
		defer a.unauthenticated.Enter(silentConn{})()
	}
	report(silent, "invented")
	report(connect(), strings.Repeat("x", maxReport))
	if o := a.Outcome(); o.First != nil {
		t.Errorf("reported: %.100s", o.First.Reason)
	}
	for _, s := range a.joinAll(t, 1) {
		s.Leave(0, nil)
	}
}

// TestLongReportsArrive checks that ReportProblem shortens the longest error and hint, so that the server
// accepts them.
func TestLongReportsArrive(t *testing.T) {
	key := wire.Secret{9}
	a := start(t, 1, func(o *ServerOptions) { o.ReportKey = key })
	long := strings.Repeat("\x01<ä", maxReport)
	err := ReportProblem(timeoutContext(t, time.Minute), []string{a.addr}, key, Identity{WorldSize: 1, Host: "n1"}, hints.Add(errors.New(long), long))
	if err != nil {
		t.Fatal(err)
	}
	// The server answers before it records the failure.
	o := a.Outcome()
	for end := time.Now().Add(time.Minute); o.First == nil && time.Now().Before(end); o = a.Outcome() {
		time.Sleep(time.Millisecond)
	}
	if o.First == nil || !strings.HasPrefix(o.First.Reason, "rank 0 on n1: \x01<ä") {
		t.Errorf("reported: %+v", o.First)
	}
}

// TestLongFailuresArrive checks that an error with a huge text does not make its rank appear lost.
func TestLongFailuresArrive(t *testing.T) {
	a := start(t, 1, nil)
	long := strings.Repeat("\x01<ä", 4<<20)
	for _, s := range a.joinAll(t, 1) {
		if err := s.Leave(1, hints.Add(errors.New(long), long)); err != nil {
			t.Fatal(err)
		}
	}
	o := a.Outcome()
	for end := time.Now().Add(time.Minute); o.First == nil && time.Now().Before(end); o = a.Outcome() {
		time.Sleep(time.Millisecond)
	}
	if o.First == nil || !strings.Contains(o.First.Reason, "\x01<ä") {
		t.Errorf("failure: %.200v", o.First)
	}
}
