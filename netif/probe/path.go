package probe

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"
)

// Repetition of datagrams. A datagram that is lost by chance must not count as too large.
const (
	fullTries      = 3
	fullInterval   = 150 * time.Millisecond
	searchTries    = 2
	searchInterval = 60 * time.Millisecond
	smallTimeout   = 900 * time.Millisecond
	smallInterval  = 50 * time.Millisecond
	// searchWidth is the number of sizes per round of the search. Four rounds find the largest
	// packet below 9,000 bytes.
	searchWidth = 16
)

// A shot is a question of up bytes and an answer of down bytes, as IP packets.
type shot struct{ up, down int }

// measure sends datagrams of exactly the MTU in both directions. If they are lost, it searches
// for the largest size that passes.
func (l *Listener) measure(ctx context.Context, peer Endpoint, to netip.Addr) (p Path, icmp []ICMP) {
	conn, err := dialDatagrams(ctx, l.choice.Addr, netip.AddrPortFrom(to, peer.UDP))
	if err != nil {
		return p, nil // the trials report the reason
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	r := prober{l: l, conn: conn, peer: peer.ID, overhead: overhead(to)}
	small := smallest(to)
	p.Up.Sent = min(l.endpoint.MTU, maxPacket)
	p.Down.Sent = min(peer.MTU, maxPacket)
	first := []shot{{small, small}, {p.Up.Sent, small}, {small, p.Down.Sent}}
	got := r.volley(first, fullTries, fullInterval)
	p.Tried = true
	if p.Small = got[0]; !p.Small {
		// Routers limit the rate of ICMP errors, so repeat the question.
		for until := time.Now().Add(smallTimeout); !p.Small && len(r.icmp) == 0 && time.Now().Before(until) && ctx.Err() == nil; {
			p.Small = r.volley([]shot{{small, small}}, 1, smallInterval)[0]
		}
		if !p.Small {
			return p, r.icmp
		}
		got = r.volley(first, fullTries, fullInterval) // it only needed more time
	}
	up, down := span{pass: small, fail: p.Up.Sent}, span{pass: small, fail: p.Down.Sent}
	if got[1] {
		up.pass = p.Up.Sent
	}
	if got[2] {
		down.pass = p.Down.Sent
	}
	for ctx.Err() == nil && (up.open() || down.open()) {
		ups, downs := up.sizes(), down.sizes()
		var shots []shot
		for _, s := range ups {
			shots = append(shots, shot{s, small})
		}
		for _, s := range downs {
			shots = append(shots, shot{small, s})
		}
		got := r.volley(shots, searchTries, searchInterval)
		up.narrow(ups, got[:len(ups)])
		down.narrow(downs, got[len(ups):])
	}
	p.Up.Passed, p.Down.Passed = up.pass, down.pass
	return p, r.icmp
}

// A span is the range of the largest size that passes: at least pass, and less than fail
// unless both are equal.
type span struct{ pass, fail int }

func (s span) open() bool { return s.fail-s.pass > 1 }

// sizes returns evenly spaced sizes between the ends, in ascending order.
func (s span) sizes() []int {
	if !s.open() {
		return nil
	}
	n := min(searchWidth, s.fail-s.pass-1)
	sizes := make([]int, n)
	for i := range sizes {
		sizes[i] = s.pass + (s.fail-s.pass)*(i+1)/(n+1)
	}
	return sizes
}

// narrow updates the span with the result of one round.
func (s *span) narrow(sizes []int, passed []bool) {
	for i, size := range slices.Backward(sizes) {
		if passed[i] {
			s.pass = size
			return
		}
		s.fail = size
	}
}

// A prober sends datagrams to one peer.
type prober struct {
	l        *Listener
	conn     *net.UDPConn
	peer     ID
	overhead int // bytes of headers
	icmp     []ICMP
}

// volley reports which of the shots were answered. It sends all shots at the same time and
// repeats those without an answer after each gap.
func (r *prober) volley(shots []shot, tries int, gap time.Duration) []bool {
	got := make([]bool, len(shots))
	tokens := make(map[ID]int, len(shots))
	questions := make([][]byte, len(shots))
	for i, s := range shots {
		q := datagram{kind: question, from: r.l.endpoint.ID, token: newID(), reply: s.down - r.overhead}
		tokens[q.token] = i
		questions[i] = q.encode(&r.l.secret, s.up-r.overhead)
	}
	missing := len(shots)
	buf := make([]byte, maxPacket)
	for try := 0; try < tries && missing > 0; try++ {
		for i := range shots {
			if !got[i] {
				r.send(questions[i])
			}
		}
		if r.conn.SetReadDeadline(time.Now().Add(gap)) != nil {
			return got
		}
		for missing > 0 {
			n, err := r.conn.Read(buf)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if errors.Is(err, net.ErrClosed) {
				return got
			}
			if err != nil { // an ICMP error, reported once
				r.collect()
				continue
			}
			d, ok := decode(&r.l.secret, buf[:n])
			if !ok || d.kind != answer || d.from != r.peer {
				continue
			}
			i, mine := tokens[d.token]
			if mine && !got[i] && d.got == len(questions[i]) && n == max(shots[i].down-r.overhead, minData) {
				got[i] = true
				missing--
			}
		}
	}
	return got
}

// send writes a datagram. The first write may return the error of an earlier datagram instead
// of sending, so send repeats it.
func (r *prober) send(b []byte) {
	if _, err := r.conn.Write(b); err != nil {
		r.collect()
		_, _ = r.conn.Write(b)
	}
}

// appendNew appends the elements of more that list lacks.
func appendNew(list, more []ICMP) []ICMP {
	for _, i := range more {
		if !slices.Contains(list, i) {
			list = append(list, i)
		}
	}
	return list
}

// collect records each distinct ICMP message once.
func (r *prober) collect() {
	if raw, err := r.conn.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			found, _ := readICMP(int(fd))
			r.icmp = appendNew(r.icmp, found)
		})
	}
}
