package mesh

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

const (
	// acceptRetryDelay is the delay after a failed accept.
	acceptRetryDelay = 50 * time.Millisecond
	// maxUnauthenticated is the number of unauthenticated connections that are allowed in addition
	// to one per socket of each rank. A further connection replaces an older one, see [lobby.Lobby].
	maxUnauthenticated = 256
)

// accept accepts connections and runs each handshake in its own goroutine: a silent unauthenticated
// connection must not delay the ranks behind it.
func (n *network) accept() {
	defer n.working.Done()
	for {
		raw, err := n.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// The process is most likely out of file descriptors: wait until some are free.
			select {
			case <-n.ctx.Done():
				return
			case <-time.After(acceptRetryDelay):
			}
			continue
		}
		leave := n.unauthenticated.Enter(raw)
		n.working.Go(func() {
			defer leave()
			stop := context.AfterFunc(n.ctx, func() { raw.Close() })
			defer stop()
			c, err := wire.Server(raw, n.o.Secret, n.o.label())
			if err != nil {
				return
			}
			// If the connection was replaced in the meantime, the peer connects again.
			if !leave() || c.SetDeadline(time.Now().Add(wire.HandshakeTimeout)) != nil {
				c.Close()
				return
			}
			p, s := n.hello(c)
			conn, err := n.o.established(c, true)
			if p == nil || err != nil || c.WriteFrame(kindWelcome) != nil || c.SetDeadline(time.Time{}) != nil {
				c.Close()
				return
			}
			n.adopt(p, s, conn)
		})
	}
}

// hello reads the identity of a connecting peer. It returns nil if the peer is not allowed to
// connect, or if this rank connects to that peer instead.
func (n *network) hello(c *wire.Conn) (*peer, *socket) {
	kind, b, err := c.ReadFrame()
	if err != nil || kind != kindHello || len(b) != 12 {
		return nil, nil
	}
	from, to, index := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:])
	if int(to) != n.o.Rank || int(from) == n.o.Rank || int(from) >= len(n.peers) || int(index) >= n.o.Sockets {
		return nil, nil
	}
	p := n.peers[from]
	p.needed.Do(func() { p.connectedFirst.Store(true) })
	if int(from) < n.o.Rank && !p.connectedFirst.Load() {
		return nil, nil // the peer will use this rank's connection
	}
	return p, p.sockets[index]
}
