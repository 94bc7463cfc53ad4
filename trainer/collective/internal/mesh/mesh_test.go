package mesh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// pair returns two connected ranks.
func pair(t testing.TB, o Options) [2]Mesh {
	t.Helper()
	var listeners [2]net.Listener
	var err error
	o.Addrs = nil
	for i := range listeners {
		if listeners[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		o.Addrs = append(o.Addrs, listeners[i].Addr().String())
	}
	var out [2]Mesh
	for r := range out {
		o.Rank = r
		out[r] = Connect(listeners[r], o)
		t.Cleanup(func() { out[r].Close() })
	}
	return out
}

func TestMain(m *testing.M) {
	abortTimeout = time.Minute // the machine may be busy
	m.Run()
}

var plain = Options{Secret: wire.Secret{1}, ConnectTimeout: time.Minute}

func head(sequence uint64) Head {
	return Head{Key{Group: 3, Sequence: sequence}, Signature{Kind: 1, Bytes: 9}}
}

// TestMessagesBeforeAndAfterReceive checks that a message arrives unchanged whether the receiver
// waits for it or not.
func TestMessagesBeforeAndAfterReceive(t *testing.T) {
	local := Local(2, nil)
	for name, m := range map[string][2]Mesh{"network": pair(t, plain), "local": {local[0], local[1]}} {
		for sequence, size := range []int{0, 1, 5000, MaxSegment} {
			for _, early := range []bool{true, false} {
				h := head(uint64(2 * sequence))
				if early {
					h.Sequence++
				}
				b := bytes.Repeat([]byte{byte(sequence + 1)}, size)
				got := make([]byte, size)
				var in *Transfer
				if !early {
					in = m[1].Receive(0, h, got)
				}
				if err := m[0].Send(1, h, b).Wait(t.Context()); err != nil {
					t.Fatal(name, err)
				}
				if early {
					time.Sleep(10 * time.Millisecond)
					in = m[1].Receive(0, h, got)
				}
				if err := in.Wait(t.Context()); err != nil || !bytes.Equal(got, b) {
					t.Fatalf("%s, %d bytes, early %v: %v", name, size, early, err)
				}
			}
		}
	}
}

// TestInterruptedSendReportsCause checks that a message whose connection fails during the write
// reports why the socket ended, which can be the failure of a third rank, and not the error of the
// write.
func TestInterruptedSendReportsCause(t *testing.T) {
	cause := &PeerError{2, errors.New("that rank has exited")}
	for _, tt := range []struct {
		name   string
		failed bool // the peer has closed the connection before this rank ends the socket
	}{
		{name: "this rank closes", failed: false},
		{name: "the peer closes", failed: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			near, far := net.Pipe()
			s := newSocket()
			s.attach(&connection{Conn: near})
			sent := &Transfer{peer: 1, done: make(chan struct{})}
			s.put(outgoing{frame{class: classOperation, Head: head(1)}, outgoingBytes([]byte("gradients")), sent})
			written := make(chan error, 1)
			go func() { written <- s.write() }()
			if _, err := io.ReadFull(far, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			if tt.failed {
				far.Close()
				if err := <-written; err == nil {
					t.Fatal("the write to a closed connection succeeded")
				}
			}
			s.end(cause)
			if err := sent.Wait(t.Context()); err != cause {
				t.Errorf("got %v, want %v", err, cause)
			}
			if !tt.failed {
				if err := <-written; err == nil {
					t.Error("the write to a closed connection succeeded")
				}
			}
		})
	}
}

// TestInvalidPeersAreRejected checks that connections without the protocol or with an impossible
// rank are closed and do not disturb the ranks.
func TestInvalidPeersAreRejected(t *testing.T) {
	m := pair(t, plain)
	addr := m[0].Addr(0)
	noise, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer noise.Close()
	fmt.Fprint(noise, strings.Repeat("nmap", 100))
	silent, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, hello := range [][]byte{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, {7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, {1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}, {1}} {
		raw, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		c, err := wire.Client(raw, plain.Secret, plain.label())
		if err != nil {
			t.Fatal(err)
		}
		if err := c.WriteFrame(kindHello, hello); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("hello %v: %v, want the end", hello, err)
		}
		c.Close()
	}
	got := make([]byte, 2)
	in := m[0].Receive(1, head(1), got)
	m[1].Send(0, head(1), []byte("ok"))
	if err := in.Wait(t.Context()); err != nil || string(got) != "ok" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestRankThatDoesNotConnectIsNamed checks that the error of a missing connection has the address
// of the rank.
func TestRankThatDoesNotConnectIsNamed(t *testing.T) {
	o := plain
	o.ConnectTimeout = 100 * time.Millisecond
	m := pair(t, o)
	m[1].Close()
	for r, want := range []string{"no connection to 127.0.0.1:", "this rank has closed"} {
		err := m[r].Receive(1-r, head(1), nil).Wait(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("rank %d: %v, want %q", r, err, want)
		}
	}
}

// TestStoppedPeer checks that a connection to a rank whose kernel accepts it, but whose process is
// stopped, fails after ConnectTimeout, and that Close does not wait for the handshake.
func TestStoppedPeer(t *testing.T) {
	for _, tt := range []struct {
		name    string
		timeout time.Duration
		closed  bool // this rank closes during the handshake
		want    string
	}{
		{name: "timeout", timeout: 100 * time.Millisecond, want: "no connection to 127.0.0.1:"},
		{name: "close", timeout: time.Minute, closed: true, want: ErrClosed.Error()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var listeners [2]net.Listener
			o := plain
			o.ConnectTimeout = tt.timeout
			for i := range listeners {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				listeners[i], o.Addrs = l, append(o.Addrs, l.Addr().String())
			}
			began := time.Now()
			m := Connect(listeners[0], o)
			in := m.Receive(1, head(1), nil)
			if tt.closed {
				time.Sleep(50 * time.Millisecond) // the handshake has most likely begun
				m.Close()
			}
			if err := in.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			m.Close()
			if took := time.Since(began); took > wire.HandshakeTimeout/2 {
				t.Errorf("took %v", took)
			}
		})
	}
}

// TestAbortReasonIsSent checks that a rank that aborts sends the reason and the rank at fault, and
// that its later operations fail for the same reason.
func TestAbortReasonIsSent(t *testing.T) {
	m := pair(t, plain)
	for r := range m {
		if err := m[r].Send(1-r, head(0), nil).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := m[0].Receive(1, head(0), nil).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	in := m[1].Receive(0, head(1), make([]byte, 9))
	m[0].Abort(&PeerError{Peer: 5, Err: errors.New("it burns")})
	err := in.Wait(t.Context())
	var of *PeerError
	if !errors.As(err, &of) || of.Peer != 5 || !strings.Contains(err.Error(), "rank 0 gave up: it burns") {
		t.Errorf("got %v", err)
	} else if got := m[1].Addr(of.Peer); got != "unknown address" { // the message names a rank that does not exist
		t.Errorf("address of rank 5 of 2: got %q", got)
	}
	// Later operations of the rank that gave up fail for the same reason.
	if err := m[0].Send(1, head(2), nil).Wait(t.Context()); !errors.As(err, &of) || of.Peer != 5 || !strings.Contains(err.Error(), "it burns") {
		t.Errorf("after it gave up: %v", err)
	}
}

// TestAbortReasonAfterBrokenConnection checks that the reason why a rank gives up is read from one
// connection, even if the other connection ends before that, in the middle of a message.
func TestAbortReasonAfterBrokenConnection(t *testing.T) {
	m := pair(t, plain)
	for segment := range uint32(sockets) {
		h := head(0)
		h.Segment = segment
		if err := m[0].Send(1, h, nil).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := m[1].Receive(0, h, nil).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	in := m[1].Receive(0, head(1), make([]byte, 9))
	conn := m[0].(*network).peers[1].sockets[1].conn.Conn.(*net.TCPConn)
	if _, err := conn.Write(make([]byte, frameHead/2)); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	for p := m[1].(*network).peers[0]; p.ended.Load() == 0 && !in.Over(); {
		time.Sleep(time.Millisecond)
	}
	m[0].Abort(&PeerError{Peer: 5, Err: errors.New("it burns")})
	if err := in.Wait(t.Context()); err == nil || err.Error() != "rank 5: rank 0 gave up: it burns" {
		t.Errorf("got %v", err)
	}
}

// TestMismatchIsReportedToPeer checks that a rank that receives a message of a different operation
// can report the mismatch to the sender before it closes the connection.
func TestMismatchIsReportedToPeer(t *testing.T) {
	m := pair(t, plain)
	first, in := m[0].Receive(1, head(1), nil), m[1].Receive(0, head(2), nil)
	other := head(1)
	other.Kind++
	m[1].Send(0, other, nil)
	var mismatch *Mismatch
	if err := first.Wait(t.Context()); !errors.As(err, &mismatch) {
		t.Fatalf("got %v, want a mismatch", err)
	}
	time.Sleep(10 * time.Millisecond) // this rank would have closed the connection
	m[0].Abort(&PeerError{Peer: 1, Err: mismatch})
	if err := in.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "rank 0 gave up: rank 1 is in a different operation") {
		t.Errorf("got %v", err)
	}
}

// TestLostAfterFailure checks that a peer that closes its connections after a failure does not become
// the reason why this rank cannot send.
func TestLostAfterFailure(t *testing.T) {
	x := newInbox()
	x.markLost(1, errConnectionClosed)
	if err := x.Lost([]int{0, 1}); err == nil || !strings.HasPrefix(err.Error(), "rank 1: ") {
		t.Errorf("got %v", err)
	}
	reason := &PeerError{Peer: 5, Err: &RemoteAbort{0, "it burns"}}
	x.fail(reason)
	if err := x.markLost(0, errConnectionClosed); err != error(reason) || x.Lost([]int{0}) != error(reason) {
		t.Errorf("got %v", err)
	}
}

// TestSendWhileClosing checks that a rank can close while another goroutine sends the first message to a
// rank.
func TestSendWhileClosing(t *testing.T) {
	for range 200 {
		m := pair(t, plain)
		sent := make(chan *Transfer)
		go func() { sent <- m[0].Send(1, head(1), nil) }()
		m[0].Close()
		if err := (<-sent).Wait(t.Context()); err != nil && !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
		m[1].Close()
	}
}

// TestWaitEndsWithItsContext checks that Wait returns the cause of its context.
func TestWaitEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	if err := Local(2, nil)[0].Receive(1, head(0), nil).Wait(ctx); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
}

// TestLeave checks that a group that was left has no current operation.
func TestLeave(t *testing.T) {
	x := newInbox()
	if err := x.Enter(3, 5, Signature{Kind: 1}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := x.arrive(1, Head{Key{Group: 3, Sequence: 5}, Signature{Kind: 2}}, 0); err == nil {
		t.Error("another operation is none")
	}
	if x.Leave(3); len(x.current) > 0 {
		t.Errorf("still in %v", x.current)
	}
}
