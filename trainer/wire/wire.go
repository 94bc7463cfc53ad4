// Package wire provides an authenticated connection between two processes of a job. Both sides
// first prove that they have the attempt's secret. Then they exchange frames with a length, a
// kind, and a MAC, which includes the number of the frame.
//
// Guarantees:
//
//   - A peer without the secret is dropped within the handshake timeout. It receives no data that
//     depends on the secret, and costs a limited amount of memory.
//   - A recorded handshake cannot be replayed, because both sides contribute a fresh nonce.
//   - A truncated, altered, repeated, or reordered frame is an error and never a message.
//
// The package does not encrypt: anyone who can read the network can read the messages. It does
// not reconnect and does not choose addresses.
package wire

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// HandshakeTimeout limits how long an unauthenticated peer can hold a connection.
	HandshakeTimeout = 5 * time.Second
	// MaxFrame is the maximum payload of a frame, in bytes. The largest valid payload is a
	// node's network inventory.
	MaxFrame = 8 << 20

	magic     = "ddpbatch wire 1\n"
	nonceSize = 32
	macSize   = 16
	maxLabel  = 64
	headerLen = 4 + 1
)

// ErrNotAuthentic means that the peer does not have this attempt's secret, or that a message
// is not authentic.
var ErrNotAuthentic = errors.New("peer does not prove knowledge of this attempt's secret")

// A Secret is the key of one attempt of a job. On one host, the launcher may pass it to the
// ranks in an environment variable. Other hosts read it from a file of mode 0600. It is never
// in an argument list.
type Secret [32]byte

// NewSecret returns a random secret from the system's random source.
func NewSecret() (Secret, error) {
	var s Secret
	if _, err := rand.Read(s[:]); err != nil {
		return s, fmt.Errorf("draw a secret: %w", err)
	}
	return s, nil
}

// ParseSecret parses the format of Encode.
func ParseSecret(text string) (Secret, error) {
	var s Secret
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(s) {
		// Do not quote the text: it may contain most of the real secret.
		return s, fmt.Errorf("the secret is not %d hexadecimal digits", 2*len(s))
	}
	copy(s[:], b)
	return s, nil
}

// Encode returns the secret as hexadecimal digits.
func (s Secret) Encode() string { return hex.EncodeToString(s[:]) }

// String hides the secret, so that it cannot appear in a message by accident.
func (s Secret) String() string { return "(secret)" }

// GoString hides the secret from %#v.
func (s Secret) GoString() string { return "wire.Secret(hidden)" }

// A Conn is an authenticated connection. One goroutine may read while others write.
type Conn struct {
	net.Conn
	readMAC   hash.Hash
	readSeq   uint64
	readBuf   [headerLen + macSize]byte
	writeLock sync.Mutex
	writeMAC  hash.Hash
	writeSeq  uint64
	exporter  []byte // key that [Conn.DeriveKey] expands
}

// DeriveKey returns a key of size bytes that only the two ends of this connection have. It
// depends on the secret, the label, the nonces of both ends, and use, so it is unique to this
// connection and use. The caller may use it for data that it sends over the network connection
// without frames.
func (c *Conn) DeriveKey(use string, size int) ([]byte, error) {
	return hkdf.Expand(sha256.New, c.exporter, "ddpbatch "+use, size)
}

// Client authenticates the accepting side of c and this process to each other, by the secret.
// label binds the connection to one use and must be equal on both sides. On an error, Client
// closes c.
func Client(c net.Conn, secret Secret, label string) (*Conn, error) {
	conn, _, err := handshake(c, []Key{{secret, label}}, false)
	return conn, err
}

// Server authenticates the connecting side of c, the counterpart of [Client].
func Server(c net.Conn, secret Secret, label string) (*Conn, error) {
	conn, _, err := ServerAny(c, Key{secret, label})
	return conn, err
}

// A Key is a secret with the label of its use.
type Key struct {
	Secret Secret
	Label  string
}

// ServerAny is like [Server], for a peer with one of several keys. It returns the index of the
// peer's key.
func ServerAny(c net.Conn, keys ...Key) (conn *Conn, which int, err error) {
	return handshake(c, keys, true)
}

// handshake exchanges magic strings and nonces, then proofs, which include the label. The
// connecting side sends both first. Thus an unauthenticated client costs little and gets no
// data derived from the secret. A server may have several keys; it uses the client's key.
func handshake(c net.Conn, keys []Key, server bool) (_ *Conn, which int, err error) {
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	for _, k := range keys {
		if len(k.Label) > maxLabel {
			panic("wire: internal error: label too long")
		}
	}
	if err := c.SetDeadline(time.Now().Add(HandshakeTimeout)); err != nil {
		return nil, 0, err
	}
	var ownHello, peerHello [len(magic) + nonceSize]byte
	clientNonce, serverNonce := ownHello[len(magic):], peerHello[len(magic):]
	if server {
		clientNonce, serverNonce = serverNonce, clientNonce
	}
	derive := func(use string) []byte {
		key := &keys[which]
		m := hmac.New(sha256.New, key.Secret[:])
		for _, part := range [][]byte{[]byte(use), []byte(key.Label), clientNonce, serverNonce} {
			var n [4]byte
			binary.LittleEndian.PutUint32(n[:], uint32(len(part)))
			m.Write(n[:])
			m.Write(part)
		}
		return m.Sum(nil)
	}
	sendHello := func() error {
		copy(ownHello[:], magic)
		if _, err := rand.Read(ownHello[len(magic):]); err != nil {
			return fmt.Errorf("draw a nonce: %w", err)
		}
		_, err := c.Write(ownHello[:])
		return err
	}
	receiveHello := func() error {
		if _, err := io.ReadFull(c, peerHello[:]); err != nil {
			return err
		}
		if string(peerHello[:len(magic)]) != magic {
			return ErrNotAuthentic
		}
		return nil
	}
	sendProof := func(use string) error {
		_, err := c.Write(derive(use))
		return err
	}
	checkProof := func(use string) error {
		var got [sha256.Size]byte
		if _, err := io.ReadFull(c, got[:]); err != nil {
			// A server that rejects the proof closes the connection. A client that closes it
			// has only disconnected.
			if !server && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
				return ErrNotAuthentic
			}
			return err
		}
		for which = range keys {
			if subtle.ConstantTimeCompare(got[:], derive(use)) == 1 {
				return nil
			}
		}
		return ErrNotAuthentic
	}
	steps := []func() error{sendHello, receiveHello,
		func() error { return sendProof("client proof") }, func() error { return checkProof("server proof") }}
	if server {
		steps = []func() error{receiveHello, sendHello,
			func() error { return checkProof("client proof") }, func() error { return sendProof("server proof") }}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, 0, fmt.Errorf("handshake: %w", err)
		}
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		return nil, 0, err
	}
	toServer, toClient := hmac.New(sha256.New, derive("to server")), hmac.New(sha256.New, derive("to client"))
	if server {
		return &Conn{Conn: c, readMAC: toServer, writeMAC: toClient, exporter: derive("exporter")}, which, nil
	}
	return &Conn{Conn: c, readMAC: toClient, writeMAC: toServer, exporter: derive("exporter")}, which, nil
}

// WriteFrame sends one frame that consists of the parts, at most [MaxFrame] bytes in total. It
// does not modify the parts, so several connections may send them concurrently.
func (c *Conn) WriteFrame(kind byte, parts ...[]byte) error {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	if size > MaxFrame {
		return fmt.Errorf("frame of %d bytes is over the limit of %d", size, MaxFrame)
	}
	c.writeLock.Lock()
	defer c.writeLock.Unlock()
	var head [headerLen]byte
	binary.LittleEndian.PutUint32(head[:], uint32(size))
	head[4] = kind
	frame := make([]byte, 0, headerLen+macSize+size)
	frame = append(frame, head[:]...)
	frame = append(frame, mac(c.writeMAC, c.writeSeq, head, parts...)...)
	for _, p := range parts {
		frame = append(frame, p...)
	}
	c.writeSeq++
	_, err := c.Write(frame)
	return err
}

// ReadFrame returns the next frame. It returns io.EOF if the peer closed the connection between
// frames, and an error that wraps [ErrNotAuthentic] if the frame was altered, repeated, or reordered.
// After an error, the connection cannot be used.
func (c *Conn) ReadFrame() (kind byte, payload []byte, err error) { return c.ReadFrameWithin(MaxFrame) }

// ReadFrameWithin is like [Conn.ReadFrame], with a lower limit on the payload, in bytes. It rejects
// a larger frame before it allocates memory.
func (c *Conn) ReadFrameWithin(limit int) (kind byte, payload []byte, err error) {
	if _, err := io.ReadFull(c.Conn, c.readBuf[:]); err != nil {
		return 0, nil, err
	}
	head := [headerLen]byte(c.readBuf[:headerLen])
	size := binary.LittleEndian.Uint32(head[:])
	if int64(size) > int64(limit) {
		return 0, nil, fmt.Errorf("frame of %d bytes is over the limit of %d", size, limit)
	}
	payload = make([]byte, size)
	if _, err := io.ReadFull(c.Conn, payload); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	if subtle.ConstantTimeCompare(c.readBuf[headerLen:], mac(c.readMAC, c.readSeq, head, payload)) != 1 {
		return 0, nil, fmt.Errorf("frame %d: %w", c.readSeq, ErrNotAuthentic)
	}
	c.readSeq++
	return head[4], payload, nil
}

func mac(h hash.Hash, seq uint64, head [headerLen]byte, payload ...[]byte) []byte {
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], seq)
	h.Reset()
	h.Write(n[:])
	h.Write(head[:])
	for _, p := range payload {
		h.Write(p)
	}
	return h.Sum(nil)[:macSize]
}
