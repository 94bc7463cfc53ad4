package mesh

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/crc32c"
	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// handshakeBytes is the number of bytes that the connecting side sends before the first frame.
const handshakeBytes = 16 + 32 + 32 + 5 + 16 + 12

// addProxy returns the address of a proxy for a connection to addr. The proxy passes each frame,
// which has a head of headSize bytes, to tamper and forwards the result; nil closes the connection.
func addProxy(t *testing.T, addr string, headSize int, tamper func(n int, frame []byte) []byte) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		from, err := l.Accept()
		if err != nil {
			return
		}
		defer from.Close()
		to, err := net.Dial("tcp", addr)
		if err != nil {
			t.Error(err)
			return
		}
		defer to.Close()
		go io.Copy(from, to)
		if _, err := io.CopyN(to, from, handshakeBytes); err != nil {
			return
		}
		for n := 0; ; n++ {
			head := make([]byte, headSize)
			if _, err := io.ReadFull(from, head); err != nil {
				return
			}
			payload := make([]byte, binary.LittleEndian.Uint32(head[40:]))
			if _, err := io.ReadFull(from, payload); err != nil {
				return
			}
			out := tamper(n, append(head, payload...))
			if out == nil {
				return
			}
			if _, err := to.Write(out); err != nil {
				return
			}
		}
	}()
	return l.Addr().String()
}

// flip alters one bit.
func flip(b []byte, at int) []byte {
	b[at] ^= 4
	return b
}

// TestTamperedFramesAreNamed checks that an alteration between two ranks is detected and reported
// with the rank that sent the frame.
func TestTamperedFramesAreNamed(t *testing.T) {
	var recorded []byte // a frame of another connection under the same secret
	for _, tt := range []struct {
		name   string
		tamper func(frame []byte) []byte
		want   string
	}{
		{"nothing", func(f []byte) []byte { recorded = bytes.Clone(f); return f }, ""},
		{"payload altered", func(f []byte) []byte { return flip(f, frameHead+700) }, "is corrupt (its CRC-32C is"},
		{"head altered", func(f []byte) []byte { return flip(f, 16) }, "the header of a message is corrupt"},
		{"length altered", func(f []byte) []byte { return flip(f, 40) }, "the header of a message is corrupt"},
		{"repeated", func(f []byte) []byte { return append(f, f...) }, "received message 1 instead of message 2"},
		{"left out", func([]byte) []byte { return []byte{} }, "received message 2 instead of message 1"},
		{"truncated", func(f []byte) []byte { return f[:100] }, "is corrupt"},
		{"cut off", func([]byte) []byte { return nil }, "the connection was closed"},
		{"replayed", func(f []byte) []byte { return recorded }, "sent over another connection"},
		{"injected", func(f []byte) []byte { return append(make([]byte, frameHead), f...) }, "header of a message is corrupt"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, proxied := tamperedPair(t, false, tt.tamper)
			for i := range uint64(3) {
				b := bytes.Repeat([]byte{byte(i)}, 1000)
				m[1].Send(0, head(i), b)
			}
			var err error
			for i := uint64(0); i < 3 && err == nil; i++ {
				if i == 0 {
					<-proxied // rank 1 is the connecting side
				}
				err = m[0].Receive(1, head(i), make([]byte, 1000)).Wait(t.Context())
			}
			var of *PeerError
			switch {
			case tt.want == "" && err == nil:
			case tt.want == "" || !errors.As(err, &of) || of.Peer != 1 || !strings.Contains(err.Error(), tt.want):
				t.Errorf("got %v, want %q of rank 1", err, tt.want)
			}
			// The error ends the run like a lost rank, with a hint.
			var coded interface {
				ExitCode() int
				Hint() string
			}
			if altered := tt.want != "" && tt.name != "cut off"; errors.As(err, &coded) != altered || altered && (coded.ExitCode() != 4 || coded.Hint() == "") {
				t.Errorf("exit code and hint of %v", err)
			}
		})
	}
}

// TestAlteredFramesAreRejectedByTag checks that tags reveal an attacker who can read, alter, and
// insert frames and compute CRCs, but does not have the key.
func TestAlteredFramesAreRejectedByTag(t *testing.T) {
	// reseal computes the CRCs of a frame again, as if it had no tags.
	reseal := func(f []byte) []byte {
		order := binary.LittleEndian
		order.PutUint32(f[44:], crc32c.Update(0, f[taggedHead:]))
		order.PutUint32(f[sumAt:], crc32c.Update(0, f[:sumAt]))
		return f
	}
	var recorded []byte // a frame of another connection under the same secret
	for _, tt := range []struct {
		name   string
		tamper func(frame []byte) []byte
		want   string
	}{
		{"nothing", func(f []byte) []byte { recorded = bytes.Clone(f); return f }, ""},
		{"payload replaced", func(f []byte) []byte { return flip(f, taggedHead+700) }, "its tag does not match"},
		{"payload replaced, CRCs computed again", func(f []byte) []byte { return reseal(flip(f, taggedHead+700)) }, "its tag does not match"},
		{"head altered", func(f []byte) []byte { return reseal(flip(f, 16)) }, "its tag does not match"},
		{"length altered", func(f []byte) []byte { return flip(f, 40) }, "its tag does not match"},
		{"repeated", func(f []byte) []byte { return append(f, f...) }, "its tag does not match"},
		{"left out", func([]byte) []byte { return []byte{} }, "its tag does not match"},
		{"replayed from another connection", func([]byte) []byte { return recorded }, "its tag does not match"},
		{"injected", func(f []byte) []byte { return append(bytes.Clone(f[:frameHead]), f...) }, "its tag does not match"},
		{"cut off", func([]byte) []byte { return nil }, "the connection was closed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, proxied := tamperedPair(t, true, tt.tamper)
			for i := range uint64(3) {
				m[1].Send(0, head(i), bytes.Repeat([]byte{byte(i)}, 1000))
			}
			var err error
			for i := uint64(0); i < 3 && err == nil; i++ {
				if i == 0 {
					<-proxied // rank 1 is the connecting side
				}
				b := make([]byte, 1000)
				err = m[0].Receive(1, head(i), b).Wait(t.Context())
				if err == nil && !bytes.Equal(b, bytes.Repeat([]byte{byte(i)}, 1000)) {
					t.Fatalf("message %d arrived altered", i)
				}
			}
			var of *PeerError
			switch {
			case tt.want == "" && err == nil:
			case tt.want == "" || !errors.As(err, &of) || of.Peer != 1 || !strings.Contains(err.Error(), tt.want):
				t.Errorf("got %v, want %q of rank 1", err, tt.want)
			}
			var coded interface {
				ExitCode() int
				Hint() string
			}
			if altered := tt.want != "" && tt.name != "cut off"; errors.As(err, &coded) != altered || altered && (coded.ExitCode() != 4 || coded.Hint() == "") {
				t.Errorf("exit code and hint of %v", err)
			}
		})
	}
}

// TestReflectedFrameIsRejectedByTag checks that a rank does not accept its own messages if they
// are reflected.
func TestReflectedFrameIsRejectedByTag(t *testing.T) {
	var conns [2]*connection
	done := make(chan error)
	a, b := net.Pipe()
	o := Options{Authenticate: true}
	for i, raw := range []net.Conn{a, b} {
		go func() {
			prove := wire.Client
			if i == 1 {
				prove = wire.Server
			}
			c, err := prove(raw, plain.Secret, o.label())
			if err == nil {
				conns[i], err = o.established(c, i == 1)
			}
			done <- err
		}()
	}
	for range conns {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range conns {
		sent := encoded(c.out)
		c.out.tags.frame = 0
		if err := readAll(c.in, sent); err != errAltered {
			t.Errorf("end %d takes its own frame: %v", i, err)
		}
		if err := readAll(conns[1-i].in, encoded(c.out)); err != nil {
			t.Errorf("end %d: %v", 1-i, err)
		}
	}
}

// TestRanksWithAndWithoutTagsDoNotConnect checks that two ranks cannot connect if only one of them
// uses tags.
func TestRanksWithAndWithoutTagsDoNotConnect(t *testing.T) {
	o := plain
	o.ConnectTimeout = time.Second
	var listeners [2]net.Listener
	for i := range listeners {
		var err error
		if listeners[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		o.Addrs = append(o.Addrs, listeners[i].Addr().String())
	}
	var m [2]Mesh
	for r := range m {
		o.Rank, o.Authenticate = r, r == 1
		m[r] = Connect(listeners[r], o)
		defer m[r].Close()
	}
	// A rank that tries again until the limit may have no answer to its last attempt.
	err := m[1].Receive(0, head(1), nil).Wait(t.Context())
	if err == nil || !strings.Contains(err.Error(), "does not prove knowledge") && !strings.Contains(err.Error(), "no connection to "+o.Addrs[0]+" within 1s") {
		t.Errorf("got %v", err)
	}
}

// tamperedPair returns a pair in which rank 1 connects to rank 0 through a proxy that alters the
// second frame. The channel is closed after the first frame.
func tamperedPair(t *testing.T, authenticate bool, tamper func([]byte) []byte) ([2]Mesh, chan struct{}) {
	t.Helper()
	var listeners [2]net.Listener
	var addrs []string
	for i := range listeners {
		var err error
		if listeners[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		addrs = append(addrs, listeners[i].Addr().String())
	}
	first := make(chan struct{})
	o := plain
	o.Sockets, o.ConnectTimeout, o.Authenticate = 1, time.Minute, authenticate
	headSize := frameHead
	if authenticate {
		headSize = taggedHead
	}
	var out [2]Mesh
	for r := range out {
		o.Rank, o.Addrs = r, addrs
		if r == 1 {
			o.Addrs = []string{addProxy(t, addrs[0], headSize, func(n int, f []byte) []byte {
				switch n {
				case 0:
					close(first)
				case 1:
					return tamper(f)
				}
				return f
			}), addrs[1]}
		}
		out[r] = Connect(listeners[r], o)
		t.Cleanup(func() { out[r].Close() })
	}
	return out, first
}
