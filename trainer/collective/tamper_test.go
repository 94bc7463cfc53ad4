package collective_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// attacker is a proxy on the path between two ranks. It changes the sign of all elements that they
// send and recomputes the CRCs.
type attacker struct {
	headSize int
	changed  atomic.Int32 // number of changed messages
}

// These are the bytes of a handshake in each direction: nonces, proofs, and one frame.
const (
	fromClient = 16 + 32 + 32 + 5 + 16 + 12
	fromServer = 16 + 32 + 32 + 5 + 16
)

// addProxy returns an address that forwards to addr through the attacker.
func (a *attacker) addProxy(t *testing.T, addr string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", addr)
			if err != nil {
				client.Close()
				continue
			}
			go a.forward(server, client, fromClient)
			go a.forward(client, server, fromServer)
		}
	}()
	return l.Addr().String()
}

func (a *attacker) forward(to, from net.Conn, handshake int64) {
	defer to.Close()
	defer from.Close()
	if _, err := io.CopyN(to, from, handshake); err != nil {
		return
	}
	const lengthAt, payloadSumAt, headSumAt = 40, 44, 60
	table := crc32.MakeTable(crc32.Castagnoli)
	order := binary.LittleEndian
	head := make([]byte, a.headSize)
	for {
		if _, err := io.ReadFull(from, head); err != nil {
			return
		}
		payload := make([]byte, order.Uint32(head[lengthAt:]))
		if _, err := io.ReadFull(from, payload); err != nil {
			return
		}
		if head[0] == 1 && len(payload) >= 1000 { // elements of an operation
			for i := 3; i < len(payload); i += 4 {
				payload[i] ^= 0x80
			}
			order.PutUint32(head[payloadSumAt:], crc32.Checksum(payload, table))
			order.PutUint32(head[headSumAt:], crc32.Checksum(head[:headSumAt], table))
			a.changed.Add(1)
		}
		if _, err := to.Write(append(head, payload...)); err != nil {
			return
		}
	}
}

// TestAlteredSumsAreRejected checks that ranks with tags reject gradients that an attacker between
// two nodes has altered, with recomputed CRCs. Rejecting ranks fail with exit code 4, which means
// that the job is not at fault.
func TestAlteredSumsAreRejected(t *testing.T) {
	for _, tt := range []struct {
		name         string
		authenticate bool
		headSize     int
	}{
		{"checksums", false, 64}, // shows that the attack works; the behavior of the ranks is undefined
		{"tags", true, 64 + 32},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := &attacker{headSize: tt.headSize}
			secret, err := wire.NewSecret()
			if err != nil {
				t.Fatal(err)
			}
			var listeners [2]net.Listener
			var addrs [2]string
			for i := range listeners {
				if listeners[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
					t.Fatal(err)
				}
				addrs[i] = listeners[i].Addr().String()
			}
			errs := make(chan error, 2)
			for rank := range 2 {
				o := collective.Options{Rank: rank, Addrs: addrs[:], Secret: secret, Sockets: 1,
					Authenticate: tt.authenticate, ConnectTimeout: time.Minute, Timeout: time.Minute}
				o.Addrs = []string{addrs[0], addrs[1]}
				o.Addrs[1-rank] = a.addProxy(t, addrs[1-rank])
				go func() {
					c, err := collective.Connect(t.Context(), listeners[rank], o)
					if err == nil {
						err = c.Do(t.Context(), collective.AllReduce(make([]float32, 100_000), collective.Sum))
						c.Close()
					}
					errs <- err
				}()
			}
			found, rejected := 0, false
			for range 2 {
				err := <-errs
				if !tt.authenticate {
					continue
				}
				text := fmt.Sprint(err)
				tag := strings.Contains(text, "its tag does not match")
				// The other rank may only see that its peer has closed the connection.
				closed := strings.Contains(text, "the connection was closed") || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
				if !tag && !closed {
					t.Errorf("got %v, want a rejected tag or a closed connection", err)
				}
				rejected = rejected || tag
				var coded interface{ ExitCode() int }
				if errors.As(err, &coded) && coded.ExitCode() == 4 {
					found++
				}
			}
			if tt.authenticate && !rejected {
				t.Error("no rank reports the tag")
			}
			if tt.authenticate && found == 0 {
				t.Error("no rank fails with exit code 4")
			}
			if a.changed.Load() == 0 {
				t.Error("the attacker changed nothing")
			}
		})
	}
}
