package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// pair returns both ends of a loopback TCP connection.
func pair(t testing.TB) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

func secret(t testing.TB) Secret {
	t.Helper()
	s, err := NewSecret()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// shake runs both sides of a handshake and returns their results.
func shake(t testing.TB, clientSecret, serverSecret Secret, clientLabel, serverLabel string) (c, s *Conn, cerr, serr error) {
	t.Helper()
	a, b := pair(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s, serr = Server(b, serverSecret, serverLabel)
	}()
	c, cerr = Client(a, clientSecret, clientLabel)
	<-done
	return c, s, cerr, serr
}

// TestFramesBothWays checks that frames arrive unchanged in both directions, and that the end of a
// connection is reported as EOF.
func TestFramesBothWays(t *testing.T) {
	key := secret(t)
	c, s, cerr, serr := shake(t, key, key, "x", "x")
	if cerr != nil || serr != nil {
		t.Fatal(cerr, serr)
	}
	for i := range 3 {
		want := bytes.Repeat([]byte{byte(i)}, i*1000)
		if err := c.WriteFrame(byte(i), want); err != nil {
			t.Fatal(err)
		}
		kind, got, err := s.ReadFrame()
		if err != nil || kind != byte(i) || !bytes.Equal(got, want) {
			t.Fatalf("frame %d: kind %d, %d bytes, %v", i, kind, len(got), err)
		}
		if err := s.WriteFrame(9, []byte("back")); err != nil {
			t.Fatal(err)
		}
		if _, got, err := c.ReadFrame(); err != nil || string(got) != "back" {
			t.Fatalf("answer %d: %q, %v", i, got, err)
		}
	}
	c.Close()
	if _, _, err := s.ReadFrame(); !errors.Is(err, io.EOF) {
		t.Fatalf("after close: %v, want EOF", err)
	}
}

// TestUnauthenticatedPeersAreRejected checks that a peer with a wrong secret, label, or protocol
// is rejected without an answer.
func TestUnauthenticatedPeersAreRejected(t *testing.T) {
	key := secret(t)
	if _, _, cerr, serr := shake(t, secret(t), key, "x", "x"); cerr == nil || !errors.Is(serr, ErrNotAuthentic) {
		t.Errorf("wrong secret: client %v, server %v", cerr, serr)
	}
	if _, _, cerr, serr := shake(t, key, key, "control", "data"); cerr == nil || !errors.Is(serr, ErrNotAuthentic) {
		t.Errorf("other label: client %v, server %v", cerr, serr)
	}
	a, b := pair(t)
	go io.WriteString(a, strings.Repeat("GET / HTTP/1.1\r\n", 100))
	if _, err := Server(b, key, "x"); !errors.Is(err, ErrNotAuthentic) {
		t.Errorf("a web client: %v", err)
	}
	if answer, _ := io.ReadAll(a); len(answer) > 0 { // the end may be a reset
		t.Errorf("a web client was answered %q", answer)
	}
}

// TestReplayIsRejected checks that a server rejects a recorded handshake, because its nonce is
// always new.
func TestReplayIsRejected(t *testing.T) {
	key := secret(t)
	a, b := pair(t)
	rec := &recorder{Conn: a}
	go Server(b, key, "x")
	if _, err := Client(rec, key, "x"); err != nil {
		t.Fatal(err)
	}
	a, b = pair(t)
	go a.Write(rec.sent.Bytes())
	if _, err := Server(b, key, "x"); !errors.Is(err, ErrNotAuthentic) {
		t.Fatalf("replayed handshake: %v, want not authentic", err)
	}
}

type recorder struct {
	net.Conn
	sent bytes.Buffer
}

func (r *recorder) Write(b []byte) (int, error) {
	r.sent.Write(b)
	return r.Conn.Write(b)
}

// TestAlteredFrames checks that a frame with any byte altered, or any shorter frame, is rejected.
func TestAlteredFrames(t *testing.T) {
	key := secret(t)
	frame := func(damage func([]byte) []byte) error {
		rec, c, s := edited(t, key)
		rec.edit = damage
		if err := c.WriteFrame(1, []byte("step 12")); err != nil {
			t.Fatal(err)
		}
		rec.Close()
		_, _, err := s.ReadFrame()
		return err
	}
	if err := frame(func(b []byte) []byte { return b }); err != nil {
		t.Fatalf("an unaltered frame: %v", err)
	}
	size := headerLen + macSize + len("step 12")
	for i := range size {
		err := frame(func(b []byte) []byte { b[i] ^= 0x10; return b })
		if err == nil {
			t.Errorf("byte %d altered: accepted", i)
		}
		if err := frame(func(b []byte) []byte { return b[:i] }); err == nil {
			t.Errorf("cut to %d bytes: accepted", i)
		}
	}
	if err := frame(func(b []byte) []byte { return append(bytes.Clone(b[:0]), 0xff, 0xff, 0xff, 0xff, 1) }); err == nil {
		t.Error("a length of 4 GiB: accepted")
	}
}

// edited returns an authenticated connection whose client's frames can be altered in transit.
func edited(t *testing.T, key Secret) (rec *editor, c, s *Conn) {
	t.Helper()
	a, b := pair(t)
	rec = &editor{Conn: a}
	done := make(chan error)
	go func() {
		var err error
		s, err = Server(b, key, "x")
		done <- err
	}()
	c, err := Client(rec, key, "x")
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return rec, c, s
}

type editor struct {
	net.Conn
	edit func([]byte) []byte
}

func (e *editor) Write(b []byte) (int, error) {
	if e.edit != nil {
		if _, err := e.Conn.Write(e.edit(bytes.Clone(b))); err != nil {
			return 0, err
		}
		return len(b), nil
	}
	return e.Conn.Write(b)
}

// TestRepeatedFrameIsRejected checks that a frame is accepted only once.
func TestRepeatedFrameIsRejected(t *testing.T) {
	key := secret(t)
	rec, c, s := edited(t, key)
	rec.edit = func(b []byte) []byte { return append(b, b...) }
	if err := c.WriteFrame(1, []byte("once")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.ReadFrame(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.ReadFrame(); !errors.Is(err, ErrNotAuthentic) {
		t.Fatalf("the same frame again: %v", err)
	}
}

// TestOmittedFrameIsRejected checks that a frame is not accepted in place of the one before it.
func TestOmittedFrameIsRejected(t *testing.T) {
	rec, c, s := edited(t, secret(t))
	rec.edit = func([]byte) []byte { return nil }
	if err := c.WriteFrame(1, []byte("first")); err != nil {
		t.Fatal(err)
	}
	rec.edit = nil
	if err := c.WriteFrame(1, []byte("other")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.ReadFrame(); !errors.Is(err, ErrNotAuthentic) {
		t.Fatalf("the second frame as the first: %v", err)
	}
}

// TestHandshakeHasOneDeadline checks that a peer cannot extend its handshake, such as with single
// bytes: its deadline is set before the first byte, and only removed at the end.
func TestHandshakeHasOneDeadline(t *testing.T) {
	for _, authentic := range []bool{true, false} {
		a, b := pair(t)
		key, other := secret(t), secret(t)
		if authentic {
			other = key
		}
		go Client(a, other, "x")
		rec := &deadlines{Conn: b}
		began := time.Now()
		_, err := Server(rec, key, "x")
		if ended := time.Now(); authentic != (err == nil) || len(rec.set) == 0 || rec.set[0].Before(began) || rec.set[0].After(ended.Add(HandshakeTimeout)) {
			t.Errorf("authentic %v: %v, deadlines %v", authentic, err, rec.set)
		}
		if later := rec.set[min(1, len(rec.set)):]; authentic && (len(later) != 1 || !later[0].IsZero()) || !authentic && len(later) > 0 {
			t.Errorf("authentic %v: later deadlines %v", authentic, later)
		}
		if rec.early {
			t.Error("read without a deadline")
		}
	}
}

// deadlines records the deadlines of a connection, and whether it was read without one.
type deadlines struct {
	net.Conn
	set   []time.Time
	early bool
}

func (d *deadlines) SetDeadline(at time.Time) error {
	d.set = append(d.set, at)
	return d.Conn.SetDeadline(at)
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	d.set = append(d.set, at)
	return d.Conn.SetReadDeadline(at)
}

func (d *deadlines) Read(b []byte) (int, error) {
	d.early = d.early || len(d.set) == 0
	return d.Conn.Read(b)
}

// TestSecretIsNotPrinted checks that a secret cannot be printed by accident, not even in an error.
func TestSecretIsNotPrinted(t *testing.T) {
	s := secret(t)
	for _, form := range []string{"%v", "%s", "%+v", "%#v"} {
		if out := fmt.Sprintf(form, s); strings.Contains(out, s.Encode()[:8]) {
			t.Errorf("%s prints the secret", form)
		}
	}
	back, err := ParseSecret(s.Encode())
	if err != nil || back != s {
		t.Errorf("parse of encode: %v", err)
	}
	if _, err := ParseSecret(s.Encode()[1:]); err == nil || strings.Contains(err.Error(), s.Encode()[1:9]) {
		t.Errorf("short secret: %v", err)
	}
}

// FuzzServer sends arbitrary bytes to the accepting side, which must never accept them.
func FuzzServer(f *testing.F) {
	f.Add([]byte(magic + strings.Repeat("n", nonceSize+32)))
	f.Add([]byte("GET / HTTP/1.0\r\n\r\n"))
	key := Secret{1}
	f.Fuzz(func(t *testing.T, data []byte) {
		a, b := net.Pipe()
		go io.Copy(io.Discard, a)
		go func() { a.Write(data); a.Close() }()
		if _, err := Server(b, key, "x"); err == nil {
			t.Fatal("a stranger was accepted")
		}
	})
}

// TestServerWithSeveralKeys checks that a server with several keys accepts a client with one of
// them, and returns its index.
func TestServerWithSeveralKeys(t *testing.T) {
	one, two := Key{secret(t), "one"}, Key{secret(t), "two"}
	for _, tt := range []struct {
		name string
		key  Key
		want int // -1 for an error
	}{
		{"first key", one, 0},
		{"second key", two, 1},
		{"secret of the first with the label of the second", Key{one.Secret, two.Label}, -1},
		{"unknown secret", Key{secret(t), "one"}, -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, b := pair(t)
			type result struct {
				conn  *Conn
				which int
				err   error
			}
			served := make(chan result, 1)
			go func() {
				c, which, err := ServerAny(b, one, two)
				served <- result{c, which, err}
			}()
			client, err := Client(a, tt.key.Secret, tt.key.Label)
			s := <-served
			if tt.want < 0 {
				if err == nil || !errors.Is(s.err, ErrNotAuthentic) {
					t.Errorf("client %v, server %v", err, s.err)
				}
				return
			}
			if err != nil || s.err != nil || s.which != tt.want {
				t.Fatalf("client %v, server key %d, %v", err, s.which, s.err)
			}
			if err := client.WriteFrame(1, []byte("x")); err != nil {
				t.Fatal(err)
			}
			if kind, b, err := s.conn.ReadFrame(); err != nil || kind != 1 || string(b) != "x" {
				t.Errorf("got %d %q, %v", kind, b, err)
			}
		})
	}
}

// TestDeriveKey checks that both ends derive the same key, and that it differs for each connection
// and each use.
func TestDeriveKey(t *testing.T) {
	key := secret(t)
	seen := map[string]string{}
	for _, label := range []string{"x", "x", "y"} {
		c, s, cerr, serr := shake(t, key, key, label, label)
		if cerr != nil || serr != nil {
			t.Fatal(cerr, serr)
		}
		for _, use := range []string{"a", "b"} {
			own, err := c.DeriveKey(use, 32)
			if err != nil || len(own) != 32 {
				t.Fatalf("%d bytes, %v", len(own), err)
			}
			if peer, err := s.DeriveKey(use, 32); err != nil || !bytes.Equal(own, peer) {
				t.Errorf("label %s, use %s: the ends differ, %v", label, use, err)
			}
			at := fmt.Sprintf("label %s, use %s", label, use)
			if other, ok := seen[string(own)]; ok {
				t.Errorf("%s has the key of %s", at, other)
			}
			seen[string(own)] = at
		}
	}
}

// TestReflectedHandshake checks that two clients that are connected to each other do not
// authenticate, and that an end that receives its own bytes does not either.
func TestReflectedHandshake(t *testing.T) {
	key := secret(t)
	shakeBoth := func(one, other func(net.Conn, Secret, string) (*Conn, error)) (error, error) {
		a, b := pair(t)
		first := make(chan error, 1)
		go func() {
			_, err := one(a, key, "x")
			a.Close()
			first <- err
		}()
		_, err := other(b, key, "x")
		b.Close()
		return <-first, err
	}
	if one, other := shakeBoth(Client, Client); one == nil || other == nil {
		t.Errorf("two clients: %v, %v", one, other)
	}
	a, b := pair(t)
	go func() {
		_, _ = io.Copy(b, b)
		b.Close()
	}()
	if _, err := Client(a, key, "x"); err == nil {
		t.Error("a client took its own bytes for those of a server")
	}
}

// TestFrameOfAnotherSessionOrDirection checks that a frame is valid only in its own session and
// direction.
func TestFrameOfAnotherSessionOrDirection(t *testing.T) {
	key := secret(t)
	session := func() (c, s *Conn) {
		c, s, cerr, serr := shake(t, key, key, "x", "x")
		if cerr != nil || serr != nil {
			t.Fatal(cerr, serr)
		}
		return c, s
	}
	record := func(from, to *Conn) []byte {
		if err := from.WriteFrame(1, []byte("hello")); err != nil {
			t.Fatal(err)
		}
		frame := make([]byte, headerLen+macSize+len("hello"))
		if _, err := io.ReadFull(to.Conn, frame); err != nil {
			t.Fatal(err)
		}
		return frame
	}
	c, s := session()
	sent := record(c, s)
	_, other := session()
	back, to := session()
	for name, put := range map[string]struct {
		frame []byte
		read  *Conn
	}{
		"another session": {sent, other},
		"other direction": {record(to, back), to},
	} {
		// The frame comes from the network, not from the other end.
		in, out := net.Pipe()
		go func() { _, _ = in.Write(put.frame); in.Close() }()
		put.read.Conn = out
		if _, _, err := put.read.ReadFrame(); !errors.Is(err, ErrNotAuthentic) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
