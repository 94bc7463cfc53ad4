package mesh

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/lobby"
	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// The handshake uses two frames of package wire: the connecting rank sends both ranks and the index
// of the socket, and the other accepts.
const (
	kindHello byte = iota + 1
	kindWelcome
)

// network is the mesh of a process. The first of two ranks that needs the other connects to it. If
// both connect, the connections of the higher rank are used.
type network struct {
	inbox
	o        Options
	listener net.Listener
	peers    []*peer
	working  sync.WaitGroup
	ctx      context.Context
	cancel   context.CancelFunc
	closing  sync.Once

	queries         atomic.Uint64 // number of queries that this rank has sent
	unauthenticated *lobby.Lobby
	attached        atomic.Int32 // number of connected sockets of all peers
}

type peer struct {
	rank           int
	needed         sync.Once
	connectedFirst atomic.Bool // the peer connected before this rank needed it
	sockets        []*socket
	ready          atomic.Int32 // number of connected sockets
	ended          atomic.Int32 // number of sockets that the peer has closed
}

// sockets is the default number of connections between two ranks. Two connections use different
// queues of a network adapter and different links of a bond. If the CPU is the bottleneck, they are
// as fast as one. More are not faster.
const sockets = 2

// Connect returns a mesh of processes that accepts connections on listener. It closes the listener
// when all ranks are connected, or when the mesh closes. Connections are made on first use.
func Connect(listener net.Listener, o Options) Mesh {
	if o.Sockets < 1 {
		o.Sockets = sockets
	}
	if l, ok := listener.(syscall.Conn); ok {
		if raw, err := l.SyscallConn(); err == nil {
			_ = disablePacing("", "", raw) // an error only costs throughput
		}
	}
	n := &network{inbox: newInbox(), o: o, listener: listener, unauthenticated: lobby.New(len(o.Addrs)*o.Sockets + maxUnauthenticated)}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	for r := range o.Addrs {
		p := &peer{rank: r}
		for range o.Sockets {
			p.sockets = append(p.sockets, newSocket())
		}
		n.peers = append(n.peers, p)
	}
	n.working.Add(1)
	go n.accept()
	return n
}

// Send queues b for a rank. Segments are distributed among its sockets.
func (n *network) Send(to int, h Head, b []byte) *Transfer {
	if len(b) > MaxSegment {
		panic(fmt.Sprintf("mesh: a message of %d bytes", len(b)))
	}
	p := n.ensureConnecting(to)
	f := frame{class: classOperation, Head: h}
	if h.Direct {
		f.class = classDirect
	}
	t := &Transfer{peer: to, done: make(chan struct{})}
	p.sockets[int(h.Segment)%len(p.sockets)].put(outgoing{f, outgoingBytes(b), t})
	return t
}

// Receive receives the message of a rank into b.
func (n *network) Receive(from int, h Head, b []byte) *Transfer {
	n.ensureConnecting(from)
	return n.inbox.Receive(from, h, b)
}

// ensureConnecting starts to connect to a peer if there is no connection yet.
func (n *network) ensureConnecting(rank int) *peer {
	p := n.peers[rank]
	p.needed.Do(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.ctx.Err() != nil {
			return // Close waits for what is working, so nothing may start
		}
		ctx, cancel := context.WithTimeoutCause(n.ctx, n.o.ConnectTimeout,
			fmt.Errorf("no connection to %s within %s", n.Addr(rank), n.o.ConnectTimeout))
		n.working.Go(func() {
			defer cancel()
			for i, s := range p.sockets {
				conn, err := n.dial(ctx, p, i)
				if err != nil {
					n.dropPeer(p, err)
					return
				}
				if conn != nil {
					n.adopt(p, s, conn)
				}
			}
		})
	})
	return p
}

// dropPeer marks a peer as lost and closes its connections.
func (n *network) dropPeer(p *peer, err error) {
	p.end(n.markLost(p.rank, err))
}

// adopt uses a connection for a socket, unless the socket already has one.
func (n *network) adopt(p *peer, s *socket, conn *connection) {
	if !s.attach(conn) {
		conn.Close()
		return
	}
	p.ready.Add(1)
	if int(n.attached.Add(1)) == (len(n.peers)-1)*n.o.Sockets {
		// No further rank may connect, so the kernel rejects all later connections.
		n.listener.Close()
	}
	n.serve(p, s)
}

// handshake runs the handshake of a new connection to a peer. It closes the connection when ctx is
// done.
func (n *network) handshake(ctx context.Context, raw net.Conn, to, index int) (*connection, error) {
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	defer stop()
	c, err := wire.Client(raw, n.o.Secret, n.o.label())
	if err != nil {
		return nil, err
	}
	var hello [12]byte
	for i, v := range []int{n.o.Rank, to, index} {
		binary.LittleEndian.PutUint32(hello[4*i:], uint32(v))
	}
	err = c.SetDeadline(time.Now().Add(wire.HandshakeTimeout))
	if err == nil {
		err = c.WriteFrame(kindHello, hello[:])
	}
	var kind byte
	var b []byte
	if err == nil {
		kind, b, err = c.ReadFrame()
	}
	if err == nil && (kind != kindWelcome || len(b) != 0) {
		err = fmt.Errorf("unexpected message of kind %d and %d bytes", kind, len(b))
	}
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	var conn *connection
	if err == nil {
		conn, err = n.o.established(c, false)
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return conn, nil
}

// Abort notifies all connected ranks and closes the mesh.
func (n *network) Abort(reason *PeerError) {
	n.fail(reason)
	message := abortReason(n.o.Rank, reason)
	b := []byte(message.Text[:min(len(message.Text), maxReason)])
	h := Head{Signature: Signature{Root: int32(reason.Peer)}, Key: Key{Step: uint32(message.By)}}
	ctx, cancel := context.WithTimeout(context.Background(), abortTimeout)
	defer cancel()
	var sent []*Transfer
	for _, p := range n.peers {
		if p.ready.Load() == 0 {
			continue
		}
		t := &Transfer{peer: p.rank, done: make(chan struct{})}
		p.sockets[0].put(outgoing{frame{class: classAbort, Head: h}, b, t})
		sent = append(sent, t)
	}
	for _, t := range sent {
		// A peer that this message does not reach detects the closed connection.
		_ = t.Wait(ctx)
	}
	n.Close()
}

// Close closes all connections.
func (n *network) Close() error {
	var err error
	n.closing.Do(func() {
		why := n.fail(ErrClosed)
		n.mu.Lock()
		n.cancel()
		n.mu.Unlock()
		err = n.listener.Close()
		for _, p := range n.peers {
			for _, s := range p.sockets {
				s.end(why)
			}
		}
	})
	n.working.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Addr returns the listen address of a rank. The rank can be from a message, so it may not exist.
func (n *network) Addr(rank int) string {
	if rank < 0 || rank >= len(n.o.Addrs) {
		return "unknown address"
	}
	return n.o.Addrs[rank]
}
