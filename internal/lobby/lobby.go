// Package lobby limits the number of unauthenticated connections.
//
// A listener on a shared node accepts connections from every local user. If it rejected new
// connections at its limit, a few hundred silent connections could lock out the job's peers. A
// [Lobby] accepts every new connection instead. If it is full, it closes the oldest connection
// of the source address with the most connections. Peers of the job authenticate immediately
// and leave the lobby. A peer whose connection is closed must connect again.
//
// The package does not read from connections, does not authenticate them, and does not set
// deadlines. Without a deadline of the caller, a silent connection stays open until the lobby is
// full.
package lobby

import (
	"net"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// A Lobby holds unauthenticated connections. It is safe for concurrent use.
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

// New returns a lobby for at most limit connections. They also have at most an eighth of the file
// descriptors of this process, which opens files, such as checkpoints, and may have several lobbies.
func New(limit int) *Lobby {
	var files unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) == nil {
		limit = limitByFiles(limit, uint64(files.Cur))
	}
	return &Lobby{max: limit, sources: map[netip.Addr]int{}}
}

// limitByFiles returns limit, or an eighth of the maximum number of open files if that is less, but at
// least 1.
func limitByFiles(limit int, files uint64) int {
	if share := files / 8; share < uint64(limit) {
		return max(int(share), 1)
	}
	return limit
}

// Enter adds c. If the lobby is full, it closes a different connection. The caller must call
// leave when the peer of c has authenticated or c is closed. leave reports whether c was still
// in the lobby.
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

// evict closes the oldest connection of the source with the most connections. The caller holds
// mu.
func (l *Lobby) evict() {
	most := 0
	for _, n := range l.sources {
		most = max(most, n)
	}
	at := slices.IndexFunc(l.waiting, func(v *visitor) bool { return l.sources[v.source] == most })
	l.waiting[at].conn.Close()
	l.remove(at)
}

// remove removes a connection. The caller holds mu.
func (l *Lobby) remove(at int) {
	source := l.waiting[at].source
	if l.sources[source]--; l.sources[source] == 0 {
		delete(l.sources, source)
	}
	l.waiting = slices.Delete(l.waiting, at, at+1)
}

// sourceOf returns the source that a connection counts for. All loopback addresses are one
// source. The addresses of an IPv6 /64 network are also one source, because one host can use
// all of them.
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
