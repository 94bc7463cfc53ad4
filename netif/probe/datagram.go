package probe

import (
	"crypto/hmac"
	"encoding/binary"
	"net/netip"
	"slices"
)

// A datagram is a header of fixed size and zero padding. The HMAC covers all of it. Integers
// are big-endian.
const (
	atMagic  = 0
	atKind   = 4
	atFrom   = 8
	atToken  = 24
	atReply  = 40
	atGot    = 44
	atSource = 48
	atMAC    = 64
	minData  = atMAC + macLen

	magic    = "dPr1"
	question = 1
	answer   = 2

	// maxPacket is the size of the largest IP packet that a probe sends, in bytes.
	maxPacket = 65535
)

// A datagram is a decoded header.
type datagram struct {
	kind   byte
	from   ID
	token  ID         // random for each question; its answer repeats it
	reply  int        // question: bytes of UDP payload that the answer must have
	got    int        // answer: bytes of UDP payload that the question had
	source netip.Addr // answer: source address of the question
}

// overhead returns the size of the headers before the UDP payload, in bytes.
func overhead(a netip.Addr) int {
	if a.Is4() {
		return 20 + 8
	}
	return 40 + 8
}

// smallest returns the size of the smallest IP packet of a datagram, in bytes.
func smallest(a netip.Addr) int { return minData + overhead(a) }

// encode returns a datagram of size bytes, or of the minimum size if size is smaller.
func (d datagram) encode(secret *[32]byte, size int) []byte {
	b := make([]byte, max(size, minData))
	copy(b[atMagic:], magic)
	b[atKind] = d.kind
	copy(b[atFrom:], d.from[:])
	copy(b[atToken:], d.token[:])
	binary.BigEndian.PutUint32(b[atReply:], uint32(d.reply))
	binary.BigEndian.PutUint32(b[atGot:], uint32(d.got))
	if d.source.IsValid() {
		source := d.source.As16()
		copy(b[atSource:], source[:])
	}
	copy(b[atMAC:], sign(secret, "datagram", b[:atMAC], b[minData:]))
	return b
}

// decode parses the output of encode. ok is false if the datagram is not from this job.
func decode(secret *[32]byte, b []byte) (d datagram, ok bool) {
	if len(b) < minData || string(b[atMagic:atKind]) != magic ||
		!hmac.Equal(b[atMAC:minData], sign(secret, "datagram", b[:atMAC], b[minData:])) {
		return d, false
	}
	d.kind = b[atKind]
	copy(d.from[:], b[atFrom:])
	copy(d.token[:], b[atToken:])
	d.reply = int(binary.BigEndian.Uint32(b[atReply:]))
	d.got = int(binary.BigEndian.Uint32(b[atGot:]))
	d.source = netip.AddrFrom16([16]byte(b[atSource:atMAC])).Unmap()
	return d, true
}

// maxAnswers limits the answers to one question. It is the number of times that an honest peer
// sends a question. A replayed question, perhaps with a victim's source address, gets no
// further answers and is not evidence of the peer's location.
const maxAnswers = max(fullTries, searchTries)

// answerDatagrams answers questions until the socket is closed.
func (l *Listener) answerDatagrams() {
	buf := make([]byte, maxPacket)
	for {
		n, from, in, err := readDatagram(l.udp, buf)
		if err != nil {
			if l.isClosed() {
				return
			}
			l.readErrorQueue()
			continue
		}
		d, ok := decode(&l.secret, buf[:n])
		if !ok || d.kind != question {
			continue
		}
		times := l.countMessage(d.token)
		if times > maxAnswers {
			continue
		}
		source := from.Addr().Unmap().WithZone("")
		if times == 1 {
			l.recordSighting(Sighting{ID: d.from, Source: source, Interface: in})
		}
		a := datagram{kind: answer, from: l.endpoint.ID, token: d.token, got: n, source: source}
		size := min(d.reply, maxPacket-overhead(source))
		// An answer that is too large for this host's link is lost, like any packet above the MTU.
		b := a.encode(&l.secret, size)
		if _, err := l.udp.WriteToUDPAddrPort(b, from); err != nil { // possibly the error of an earlier answer
			l.readErrorQueue()
			_, _ = l.udp.WriteToUDPAddrPort(b, from)
		}
	}
}

// readErrorQueue records ICMP errors about answers. Like errors about questions, they describe
// the path to that host.
func (l *Listener) readErrorQueue() {
	raw, err := l.udp.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		found, about := readICMP(int(fd))
		l.mu.Lock()
		defer l.mu.Unlock()
		for i, to := range about {
			if len(l.icmpErrors) < maxSightings {
				l.icmpErrors[to] = appendNew(l.icmpErrors[to], found[i:i+1])
			}
		}
	})
}

func (l *Listener) icmpErrorsAbout(to netip.Addr) []ICMP {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.icmpErrors[to.WithZone("")])
}

func (l *Listener) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}
