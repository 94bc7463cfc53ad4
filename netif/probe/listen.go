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

	"github.com/ddpbatch/ddpbatch/internal/lobby"
	"github.com/ddpbatch/ddpbatch/netif"
)

const (
	maxUnproven  = 256             // connections that have not greeted with the secret yet
	maxConns     = 64              // connections that have, and are being served
	maxSightings = 1024            // hosts that a listener remembers
	serveTimeout = 3 * time.Second // longer than any probe
)

// Listener answers the probes of other hosts.
type Listener struct {
	endpoint Endpoint
	choice   netif.Choice
	secret   [32]byte
	mtu      int // of the interface when the listening began; 0 is unknown
	tcp      *net.TCPListener
	udp      *net.UDPConn // nil where the system has none that serves
	stop     func() bool
	done     sync.WaitGroup
	unproven *lobby.Lobby

	mu     sync.Mutex
	conns  map[net.Conn]struct{} // all that are open
	proven int                   // how many of them have greeted with the secret
	heard  map[Sighting]struct{}
	seen   map[ID]int // how often each nonce and token of a peer has come
	closed bool
	// complaints are the ICMP messages about answers, by the host they went to.
	complaints map[netip.Addr][]ICMP
}

// listenError says what to do about a host that cannot listen.
type listenError struct {
	host  string
	where string
	err   error
}

func (e *listenError) Error() string {
	return fmt.Sprintf("%s cannot listen on %s: %v", e.host, e.where, e.err)
}

func (e *listenError) Unwrap() error { return e.err }

// Hint says what to do.
func (e *listenError) Hint() string {
	return fmt.Sprintf("see on %s whether the interface is still up and has its address: ip addr", e.host)
}

// Listen answers probes of the host's choice of network, on ports that the kernel
// picks, until ctx ends or it is closed. The secret is one of this attempt of the
// job: who does not know it gets no answer. host is for messages.
//
// The usual error is that the address has gone since it was chosen; it has a
// Hint. Tell the others with [Unable].
func Listen(ctx context.Context, host string, choice netif.Choice, secret [32]byte) (*Listener, error) {
	return listen(ctx, host, choice, secret, 0)
}

func listen(ctx context.Context, host string, choice netif.Choice, secret [32]byte, port uint16) (*Listener, error) {
	at := netip.AddrPortFrom(choice.Addr, port)
	fail := func(err error) (*Listener, error) {
		return nil, &listenError{host: host, where: fmt.Sprintf("%s (%s)", choice.Interface, choice.Addr), err: err}
	}
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	tcp, err := lc.Listen(ctx, "tcp", at.String())
	if err != nil {
		return fail(errors.Unwrap(err))
	}
	l := &Listener{
		endpoint: endpointOf(host, choice), choice: choice, secret: secret,
		tcp: tcp.(*net.TCPListener), unproven: lobby.New(maxUnproven), conns: map[net.Conn]struct{}{}, heard: map[Sighting]struct{}{}, seen: map[ID]int{},
		complaints: map[netip.Addr][]ICMP{},
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
	l.stop = context.AfterFunc(ctx, l.shut)
	return l, nil
}

// Endpoint is what the other hosts need to know.
func (l *Listener) Endpoint() Endpoint { return l.endpoint }

// Report gathers what this host saw: its own results and whom it has heard so
// far.
func (l *Listener) Report(results []Result) Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := Report{Endpoint: l.endpoint, Results: results, Heard: []Sighting{}}
	for s := range l.heard {
		r.Heard = append(r.Heard, s)
	}
	return r
}

// Close ends the listening and waits until nothing of it goes on.
func (l *Listener) Close() {
	l.stop()
	l.shut()
	l.done.Wait()
}

func (l *Listener) shut() {
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
		case err != nil: // such as too many open files: the peer will say that it got no answer
			time.Sleep(10 * time.Millisecond)
			continue
		case !l.keep(conn):
			conn.Close()
			continue
		}
		leave := l.unproven.Enter(conn)
		l.done.Go(func() {
			defer l.dismiss(conn)
			defer leave()
			if h, ok := l.hear(conn); ok && leave() && l.admit() {
				defer l.release()
				l.serve(conn, h)
			}
		})
	}
}

// keep remembers a connection for [Listener.Close]. It returns false if the listener is
// closed already.
func (l *Listener) keep(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.conns[conn] = struct{}{}
	}
	return !l.closed
}

// admit counts a connection whose peer knows the secret. It returns false if there are too
// many; a host has few neighbors.
func (l *Listener) admit() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.proven >= maxConns {
		return false
	}
	l.proven++
	return true
}

func (l *Listener) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.proven--
}

func (l *Listener) dismiss(conn net.Conn) {
	conn.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, conn)
}

func (l *Listener) sight(s Sighting) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.heard) < maxSightings {
		l.heard[s] = struct{}{}
	}
}

// note returns how often an authentic message with this nonce or token has come. Who can read
// the network can send a recorded message again, also from another address.
func (l *Listener) note(id ID) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen[id]++
	return l.seen[id]
}

// hear reads the greeting of a peer. It returns false if the peer does not know the secret or
// the greeting is a repeated one.
func (l *Listener) hear(conn *net.TCPConn) (h hello, ok bool) {
	if conn.SetDeadline(time.Now().Add(serveTimeout)) != nil {
		return h, false
	}
	err := readFrame(conn, &l.secret, "hello", &h)
	return h, err == nil && h.Version == version && h.Size >= 0 && h.Size <= maxPayload && l.note(h.Nonce) == 1
}

// serve answers a greeting. Only the peer hears of an error: the connection ends.
func (l *Listener) serve(conn *net.TCPConn, h hello) {
	source := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap().WithZone("")
	w := welcome{ID: l.endpoint.ID, Host: l.endpoint.Host, Nonce: newID(), Source: source}
	w.Host = w.Host[:min(len(w.Host), maxHostText)]
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
	// Closing comes second: the prober is then the one whose port waits.
	_, _ = conn.Read(make([]byte, 1))
}
