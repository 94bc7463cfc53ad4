// Package lobby limits the connections that have not proven who they are.
//
// A listener on a shared node takes connections from every local user. If it refused new
// connections at its limit, a few hundred silent ones could lock out the honest peers. A
// [Lobby] takes every new connection instead. If it is full, it closes one that is waiting:
// the oldest connection of the source address that has most. Honest peers prove themselves
// at once and leave. If one is closed nevertheless, it must connect again.
//
// The package does not read, and it does not decide what a proof is. It sets no deadlines:
// without a deadline of its own, a silent connection waits until others need its place.
package lobby

import (
	"net"
	"net/netip"
	"slices"
	"sync"
)

// A Lobby holds the connections that have not proven who they are. Its methods may be called
// from several goroutines.
type Lobby struct {
	max int

	mu      sync.Mutex
	waiting []*visitor // in order of arrival
	sources map[netip.Addr]int
}

type visitor struct {
	conn   net.Conn
	source netip.Addr
}

// New returns a lobby for at most max connections.
func New(max int) *Lobby { return &Lobby{max: max, sources: map[netip.Addr]int{}} }

// Enter adds c. If the lobby is full, it closes another connection. The caller must call
// leave as soon as the peer of c has proven itself or c is closed. Leave reports whether c
// was still in the lobby.
func (l *Lobby) Enter(c net.Conn) (leave func() bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) >= l.max {
		l.evict()
	}
	v := &visitor{c, sourceOf(c.RemoteAddr())}
	l.waiting = append(l.waiting, v)
	l.sources[v.source]++
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		at := slices.Index(l.waiting, v)
		if at >= 0 {
			l.remove(at)
		}
		return at >= 0
	}
}

// Len returns the number of connections in the lobby.
func (l *Lobby) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting)
}

// evict closes the oldest connection of the source that has most. The caller holds mu.
func (l *Lobby) evict() {
	most := 0
	for _, n := range l.sources {
		most = max(most, n)
	}
	at := slices.IndexFunc(l.waiting, func(v *visitor) bool { return l.sources[v.source] == most })
	l.waiting[at].conn.Close()
	l.remove(at)
}

// remove forgets a connection. The caller holds mu.
func (l *Lobby) remove(at int) {
	source := l.waiting[at].source
	if l.sources[source]--; l.sources[source] == 0 {
		delete(l.sources, source)
	}
	l.waiting = slices.Delete(l.waiting, at, at+1)
}

// sourceOf returns the address that a connection counts for. All loopback addresses are one
// source, and so are the addresses of an IPv6 network of 64 bits: one host may use any of
// them.
func sourceOf(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	addr := tcp.AddrPort().Addr().Unmap().WithZone("")
	switch {
	case addr.IsLoopback():
		return netip.IPv6Loopback()
	case addr.Is6():
		if p, err := addr.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return addr
}
