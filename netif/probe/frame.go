package probe

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
)

const (
	version = 1
	macLen  = sha256.Size
	// maxBody is far above the size of any greeting. A frame of this size fits in the smallest
	// packet that every host must accept (576 bytes).
	maxBody = 400
	// maxPayload limits how many bytes a listener reads for a peer.
	maxPayload = 1 << 20
	// maxHostName limits the host name in a greeting, in bytes.
	maxHostName = 64
)

// errUnauthenticated means that the answering program does not have the secret.
var errUnauthenticated = errors.New("unauthenticated answer")

// A hello opens a connection.
type hello struct {
	Version int `json:"v"`
	From    ID  `json:"from"`
	Nonce   ID  `json:"nonce"`
	Size    int `json:"size"` // bytes of payload that follow
}

// A welcome answers a hello.
type welcome struct {
	ID     ID         `json:"id"`
	Host   string     `json:"host"`
	Nonce  ID         `json:"nonce"`
	Source netip.Addr `json:"source"` // source address of the connection, as the listener sees it
}

// sign returns the HMAC-SHA256 of a label and the parts.
func sign(secret *[32]byte, label string, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, secret[:])
	var size [8]byte
	add := func(b []byte) {
		binary.BigEndian.PutUint64(size[:], uint64(len(b)))
		h.Write(size[:])
		h.Write(b)
	}
	add([]byte("ddpbatch probe " + label))
	for _, p := range parts {
		add(p)
	}
	return h.Sum(nil)
}

// writeFrame writes a message, preceded by its length and followed by its HMAC. The HMAC also
// covers label, which names the type of the message, and context, such as the nonce that the
// message answers.
func writeFrame(w io.Writer, secret *[32]byte, label string, message any, context ...[]byte) error {
	body, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(body) > maxBody {
		return fmt.Errorf("message %q has %d bytes, more than %d", label, len(body), maxBody)
	}
	frame := binary.BigEndian.AppendUint16(nil, uint16(len(body)))
	frame = append(frame, body...)
	frame = append(frame, sign(secret, label, append(context, body)...)...)
	_, err = w.Write(frame)
	return err
}

// readFrame reads a message that writeFrame wrote. It verifies the HMAC before it parses the
// message. The label and the context must equal the arguments of writeFrame.
func readFrame(r io.Reader, secret *[32]byte, label string, message any, context ...[]byte) error {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return err
	}
	n := int(binary.BigEndian.Uint16(size[:]))
	if n > maxBody {
		return errUnauthenticated
	}
	buf := make([]byte, n+macLen)
	if _, err := io.ReadFull(r, buf); err != nil {
		return err
	}
	body, mac := buf[:n], buf[n:]
	if !hmac.Equal(mac, sign(secret, label, append(context, body)...)) {
		return errUnauthenticated
	}
	return json.Unmarshal(body, message)
}

// receipt returns the HMAC of a payload and of the nonces of the client and the server. The client
// uses it to verify that the payload arrived unchanged in this connection.
func receipt(secret *[32]byte, client, server ID, payload []byte) []byte {
	return sign(secret, "receipt", client[:], server[:], payload)
}
