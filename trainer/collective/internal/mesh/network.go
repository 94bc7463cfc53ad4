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

// The frames of package wire: who connects to whom, and as the how-manieth socket; and
// that this is welcome.
const (
	kindHello byte = iota + 1
	kindWelcome
)

// network is a rank of a mesh of processes. Of two ranks, the one connects that first
// needs the other; if both do, the higher one's connections are used.
type network struct {
	inbox
	o        Options
	listener net.Listener
	peers    []*peer
	working  sync.WaitGroup
	ctx      context.Context
	cancel   context.CancelFunc
	closing  sync.Once

	questions atomic.Uint64 // how many this rank has asked
	unproven  *lobby.Lobby
	attached  atomic.Int32 // sockets of all peers that have been connected
}

type peer struct {
	rank    int
	needed  sync.Once
	called  atomic.Bool // it has connected before this rank needed it
	sockets []*socket
	ready   atomic.Int32 // sockets that have been connected
	ended   atomic.Int32 // and of which the peer has closed the connection
}

// sockets is the number of connections between two ranks where none is given. Two take
// different queues of a network card, and links of a bundle; where the processor is the
// limit they are as fast as one, and more are no faster.
const sockets = 2

// Connect returns a mesh of processes that accepts on listener, which it closes when all
// ranks are connected, or in the end. Connections are made when ranks are first needed.
func Connect(listener net.Listener, o Options) Mesh {
	if o.Sockets < 1 {
		o.Sockets = sockets
	}
	if l, ok := listener.(syscall.Conn); ok {
		if raw, err := l.SyscallConn(); err == nil {
			_ = unpaced("", "", raw) // it is slower without
		}
	}
	n := &network{inbox: newInbox(), o: o, listener: listener, unproven: lobby.New(len(o.Addrs)*o.Sockets + maxStrangers)}
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

// Send queues b for a rank. Segments are dealt among its sockets.
func (n *network) Send(to int, h Head, b []byte) *Transfer {
	if len(b) > MaxSegment {
		panic(fmt.Sprintf("mesh: a message of %d bytes", len(b)))
	}
	p := n.need(to)
	f := frame{class: classOperation, Head: h}
	if h.Direct {
		f.class = classDirect
	}
	t := &Transfer{peer: to, done: make(chan struct{})}
	p.sockets[int(h.Segment)%len(p.sockets)].put(outgoing{f, outgoingBytes(b), t})
	return t
}

// Receive has the message of a rank put into b.
func (n *network) Receive(from int, h Head, b []byte) *Transfer {
	n.need(from)
	return n.inbox.Receive(from, h, b)
}

// need sees to it that there will be connections to a peer.
func (n *network) need(rank int) *peer {
	p := n.peers[rank]
	p.needed.Do(func() {
		ctx, cancel := context.WithTimeoutCause(n.ctx, n.o.ConnectTimeout,
			fmt.Errorf("no connection to %s within %s", n.Addr(rank), n.o.ConnectTimeout))
		n.working.Go(func() {
			defer cancel()
			for i, s := range p.sockets {
				conn, err := n.dial(ctx, p, i)
				if err != nil {
					n.give(p, err)
					return
				}
				if conn != nil {
					n.take(p, s, conn)
				}
			}
		})
	})
	return p
}

// give up on a peer.
func (n *network) give(p *peer, err error) {
	p.end(n.lose(p.rank, err))
}

// take uses a connection for a socket, unless that has one.
func (n *network) take(p *peer, s *socket, conn *connection) {
	if !s.attach(conn) {
		conn.Close()
		return
	}
	p.ready.Add(1)
	if int(n.attached.Add(1)) == (len(n.peers)-1)*n.o.Sockets {
		// Nobody else may come: whoever tries from now on is the kernel's to refuse.
		n.listener.Close()
	}
	n.serve(p, s)
}

// introduce proves to a peer who connects.
func (n *network) introduce(raw net.Conn, to, index int) (*connection, error) {
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
	if err != nil {
		c.Close()
		return nil, err
	}
	return conn, nil
}

// Abort tells all connected ranks, and closes.
func (n *network) Abort(reason *PeerError) {
	n.fail(reason)
	say := told(n.o.Rank, reason)
	b := []byte(say.Text[:min(len(say.Text), maxReason)])
	h := Head{Signature: Signature{Root: int32(reason.Peer)}, Key: Key{Step: uint32(say.By)}}
	ctx, cancel := context.WithTimeout(context.Background(), lastWords)
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
		// Whom it does not reach sees the connection end.
		_ = t.Wait(ctx)
	}
	n.Close()
}

// Close ends every connection.
func (n *network) Close() error {
	var err error
	n.closing.Do(func() {
		why := n.fail(ErrClosed)
		n.cancel()
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

// Addr is where a rank listens.
func (n *network) Addr(rank int) string { return n.o.Addrs[rank] }
