package probe

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"testing"
)

// TestFrames checks that a message is accepted only with the right key, label, and context.
func TestFrames(t *testing.T) {
	secret, other := &[32]byte{1}, &[32]byte{2}
	var wire bytes.Buffer
	sent := hello{Version: version, From: ID{1}, Nonce: ID{2}, Size: 3}
	must(t, writeFrame(&wire, secret, "hello", sent, []byte("context")))
	frame := wire.Bytes()
	read := func(b []byte, key *[32]byte, label, context string) (h hello, err error) {
		err = readFrame(bytes.NewReader(b), key, label, &h, []byte(context))
		return h, err
	}
	if got, err := read(frame, secret, "hello", "context"); err != nil || got != sent {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, bad := range []struct{ what, label, context string }{{"label", "welcome", "context"}, {"context", "hello", "contexT"}} {
		if _, err := read(frame, secret, bad.label, bad.context); !errors.Is(err, errUnauthenticated) {
			t.Errorf("another %s: %v", bad.what, err)
		}
	}
	if _, err := read(frame, other, "hello", "context"); !errors.Is(err, errUnauthenticated) {
		t.Errorf("another secret: %v", err)
	}
	for i := range frame {
		changed := slices.Clone(frame)
		changed[i] ^= 1
		if _, err := read(changed, secret, "hello", "context"); err == nil {
			t.Errorf("a change of byte %d is not seen", i)
		}
	}
	if frame := len(frame); frame > 576-60-60 {
		t.Errorf("a greeting has %d bytes, more than fit in the smallest packet", frame)
	}
	long := welcome{ID: newID(), Nonce: newID(), Host: string(bytes.Repeat([]byte{'"'}, maxHostName)), Source: netip.MustParseAddr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff1")}
	must(t, writeFrame(&wire, secret, "welcome", long))
}

// TestDatagrams checks that a datagram with an altered byte is rejected.
func TestDatagrams(t *testing.T) {
	secret := &[32]byte{1}
	sent := datagram{kind: answer, from: ID{1}, token: ID{2}, reply: 9000, got: 1472, source: netip.MustParseAddr("10.2.0.1")}
	for _, size := range []int{0, 1472, 8972} {
		b := sent.encode(secret, size)
		if len(b) != max(size, minData) {
			t.Errorf("has %d bytes, want %d", len(b), size)
		}
		if got, ok := decode(secret, b); !ok || got != sent {
			t.Errorf("got %+v, %v", got, ok)
		}
		for _, at := range []int{atMagic, atKind, atReply, atMAC, len(b) - 1} {
			b[at] ^= 1
			if _, ok := decode(secret, b); ok {
				t.Errorf("a change of byte %d of %d is not seen", at, len(b))
			}
			b[at] ^= 1
		}
		if _, ok := decode(&[32]byte{2}, b); ok {
			t.Error("another secret is taken")
		}
	}
}

// TestSpanFindsTheLargest checks that the search finds the largest packet size within four rounds.
func TestSpanFindsTheLargest(t *testing.T) {
	for _, limit := range []int{124, 125, 576, 1400, 1499, 1500, 2044, 4092, 8999} {
		s, rounds := span{pass: 124, fail: 9000}, 0
		for s.open() {
			sizes := s.sizes()
			passed := make([]bool, len(sizes))
			for i, size := range sizes {
				passed[i] = size <= limit
			}
			s.narrow(sizes, passed)
			if rounds++; rounds > 4 {
				t.Fatalf("limit %d: still open after four rounds: %+v", limit, s)
			}
		}
		if s.pass != limit {
			t.Errorf("found %d, want %d", s.pass, limit)
		}
	}
}

// FuzzReadFrame checks that no message without the key is accepted.
func FuzzReadFrame(f *testing.F) {
	secret := &[32]byte{1}
	var wire bytes.Buffer
	must(f, writeFrame(&wire, secret, "hello", hello{Version: 1, From: ID{1}, Nonce: ID{2}, Size: 65536}))
	f.Add(wire.Bytes())
	f.Add([]byte{0, 2, '{', '}'})
	f.Add([]byte{0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		var h hello
		if readFrame(bytes.NewReader(b), secret, "hello", &h) == nil && !bytes.HasPrefix(b, wire.Bytes()) {
			t.Errorf("took a message that nobody signed: %q", b)
		}
	})
}

// FuzzSignedMessage checks messages of a peer that has the secret. readFrame either rejects a
// message or returns one that writeFrame accepts.
func FuzzSignedMessage(f *testing.F) {
	secret := &[32]byte{1}
	for _, message := range []any{hello{Version: 1, From: ID{1}, Size: -1}, welcome{ID: ID{1}, Host: "n1", Source: netip.MustParseAddr("10.0.0.1")}} {
		body, err := json.Marshal(message)
		must(f, err)
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > maxBody {
			return
		}
		frame := append(binary.BigEndian.AppendUint16(nil, uint16(len(body))), body...)
		frame = append(frame, sign(secret, "x", body)...)
		var h hello
		if readFrame(bytes.NewReader(frame), secret, "x", &h) == nil {
			var wire bytes.Buffer
			var again hello
			if err := errors.Join(writeFrame(&wire, secret, "x", h), readFrame(&wire, secret, "x", &again)); err != nil || again != h {
				t.Errorf("%+v came back as %+v, %v", h, again, err)
			}
		}
		var w welcome
		_ = readFrame(bytes.NewReader(frame), secret, "x", &w)
	})
}

// FuzzSignedDatagram checks datagrams of a peer that has the secret.
func FuzzSignedDatagram(f *testing.F) {
	secret := &[32]byte{1}
	good := datagram{kind: question, from: ID{1}, token: ID{2}, reply: 1472}.encode(secret, 0)
	f.Add(good)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < minData {
			return
		}
		b = bytes.Clone(b)
		copy(b[atMagic:], magic)
		copy(b[atMAC:minData], sign(secret, "datagram", b[:atMAC], b[minData:]))
		d, ok := decode(secret, b)
		if again, ok2 := decode(secret, d.encode(secret, 0)); !ok || !ok2 || again != d {
			t.Errorf("%+v came back as %+v", d, again)
		}
	})
}

// FuzzDecode checks that no datagram without the key is accepted.
func FuzzDecode(f *testing.F) {
	secret := &[32]byte{1}
	good := datagram{kind: question, from: ID{1}, token: ID{2}, reply: 1472}.encode(secret, 0)
	f.Add(good)
	f.Add([]byte(magic))
	f.Add(bytes.Repeat([]byte{0}, minData))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, ok := decode(secret, b); ok && !bytes.Equal(b, good) {
			t.Errorf("took a datagram that nobody signed: %q", b)
		}
	})
}
