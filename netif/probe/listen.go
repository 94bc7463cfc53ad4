package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/lobby"
	"github.com/ddpbatch/ddpbatch/netif"
)

const (
	maxUnauthenticated = 256  // connections that have not sent a valid greeting yet
	maxConns           = 64   // authenticated connections in service
	maxSightings       = 1024 // hosts that a listener records
	// serveTimeout is longer than the three stages of a trial after its connection, which
	// the timeout of a probe does not extend.
	serveTimeout = 3 * time.Second
)

// A Listener answers the probes of other hosts.
type Listener struct {
	endpoint        Endpoint
	choice          netif.Choice
	secret          [32]byte
	mtu             int // of the interface when Listen was called; 0 is unknown
	tcp             *net.TCPListener
	udp             *net.UDPConn // nil if the system does not support datagram probes
	stop            func() bool
	done            sync.WaitGroup
	unauthenticated *lobby.Lobby

	mu            sync.Mutex
	conns         map[net.Conn]struct{} // all open connections
	authenticated int                   // authenticated connections
	sightings     map[Sighting]struct{}
	counts        map[ID]int // how often each nonce and token was received
	closed        bool
	// icmpErrors are the ICMP errors about answers, by destination host.
	icmpErrors map[netip.Addr][]ICMP
}

// Listen answers probes on the host's chosen network, on ports that the kernel selects, until
// ctx ends or Close is called. The secret belongs to this attempt of the job; peers without it
// get no answer. host is the name for messages.
//
// Listen usually fails because the host lost its address since the choice. The error has a
// Hint. Report the failure to the other hosts with [Unable].
func Listen(ctx context.Context, host string, choice netif.Choice, secret [32]byte) (*Listener, error) {
	return listen(ctx, host, choice, secret, 0)
}

func listen(ctx context.Context, host string, choice netif.Choice, secret [32]byte, port uint16) (*Listener, error) {
	at := netip.AddrPortFrom(choice.Addr, port)
	fail := func(err error) (*Listener, error) {
		return nil, hints.Errorf(fmt.Sprintf("run `ip addr` on %s to check whether the interface is up and has its address", host),
			"%s cannot listen on %s (%s): %w", host, choice.Interface, choice.Addr, err)
	}
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	tcp, err := lc.Listen(ctx, "tcp", at.String())
	if err != nil {
		return fail(errors.Unwrap(err))
	}
	l := &Listener{
		endpoint: endpointOf(host, choice), choice: choice, secret: secret,
		tcp: tcp.(*net.TCPListener), unauthenticated: lobby.New(maxUnauthenticated), conns: map[net.Conn]struct{}{}, sightings: map[Sighting]struct{}{}, counts: map[ID]int{},
		icmpErrors: map[netip.Addr][]ICMP{},
	}
	if link, err := net.InterfaceByIndex(choice.Index); err == nil {
		l.mtu = link.MTU
	}
	l.endpoint.TCP = uint16(l.tcp.Addr().(*net.TCPAddr).Port)
	if l.udp, err = listenDatagrams(ctx, choice.Addr); err != nil {
		l.tcp.Close()
		return fail(err)
	}
	if l.udp != nil {
		l.endpoint.UDP = uint16(l.udp.LocalAddr().(*net.UDPAddr).Port)
		l.done.Go(l.answerDatagrams)
	}
	l.done.Go(l.accept)
	l.stop = context.AfterFunc(ctx, l.closeAll)
	return l, nil
}

// Endpoint returns the data that other hosts need to probe this listener.
func (l *Listener) Endpoint() Endpoint { return l.endpoint }

// Report returns the evidence of this host: its own results and the hosts from which it
// received datagrams so far.
func (l *Listener) Report(results []Result) Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := Report{Endpoint: l.endpoint, Results: results, Heard: []Sighting{}}
	for s := range l.sightings {
		r.Heard = append(r.Heard, s)
	}
	return r
}

// Close closes the listener and waits until all its goroutines have ended.
func (l *Listener) Close() {
	l.stop()
	l.closeAll()
	l.done.Wait()
}

func (l *Listener) closeAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.tcp.Close()
	if l.udp != nil {
		l.udp.Close()
	}
	for c := range l.conns {
		c.Close()
	}
}

func (l *Listener) accept() {
	for {
		conn, err := l.tcp.AcceptTCP()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // such as too many open files; the peer reports a missing answer
			time.Sleep(10 * time.Millisecond)
			continue
		case !l.track(conn):
			conn.Close()
			continue
		}
		leave := l.unauthenticated.Enter(conn)
		l.done.Go(func() {
			defer l.untrack(conn)
			defer leave()
			if h, ok := l.readGreeting(conn); ok && leave() && l.admit() {
				defer l.release()
				l.serve(conn, h)
			}
		})
	}
}

// track records a connection for [Listener.Close]. It returns false if the listener is already
// closed.
func (l *Listener) track(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.conns[conn] = struct{}{}
	}
	return !l.closed
}

// admit counts an authenticated connection. It returns false if there are too many. A host has
// few neighbors.
func (l *Listener) admit() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.authenticated >= maxConns {
		return false
	}
	l.authenticated++
	return true
}

func (l *Listener) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.authenticated--
}

func (l *Listener) untrack(conn net.Conn) {
	conn.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, conn)
}

func (l *Listener) recordSighting(s Sighting) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.sightings) < maxSightings {
		l.sightings[s] = struct{}{}
	}
}

// countMessage returns how often an authentic message with this nonce or token was received. An
// eavesdropper can replay a recorded message, also from a different address.
func (l *Listener) countMessage(id ID) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[id]++
	return l.counts[id]
}

// readGreeting reads the greeting of a peer. It returns false if the peer does not have the secret or
// replays a greeting.
func (l *Listener) readGreeting(conn *net.TCPConn) (h hello, ok bool) {
	if conn.SetDeadline(time.Now().Add(serveTimeout)) != nil {
		return h, false
	}
	err := readFrame(conn, &l.secret, "hello", &h)
	return h, err == nil && h.Version == version && h.Size >= 0 && h.Size <= maxPayload && l.countMessage(h.Nonce) == 1
}

// serve answers a greeting. On an error, it only closes the connection.
func (l *Listener) serve(conn *net.TCPConn, h hello) {
	source := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap().WithZone("")
	w := welcome{ID: l.endpoint.ID, Host: l.endpoint.Host, Nonce: newID(), Source: source}
	w.Host = w.Host[:min(len(w.Host), maxHostName)]
	if writeFrame(conn, &l.secret, "welcome", w, h.Nonce[:]) != nil || h.Size == 0 {
		return
	}
	payload := make([]byte, h.Size)
	if _, err := io.ReadFull(conn, payload); err != nil {
		return
	}
	if _, err := conn.Write(receipt(&l.secret, h.Nonce, w.Nonce, payload)); err != nil {
		return
	}
	if _, err := conn.Write(payload); err != nil {
		return
	}
	// The prober closes first, so that its port, not this one, enters TIME_WAIT.
	_, _ = conn.Read(make([]byte, 1))
}
