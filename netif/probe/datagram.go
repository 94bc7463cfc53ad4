package probe

import (
	"crypto/hmac"
	"encoding/binary"
	"net/netip"
	"slices"
)

// A datagram is a header of fixed size and as many zeros as its size needs. All
// of it is under the HMAC. Numbers are big-endian.
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

	// maxPacket is the largest IP packet that datagrams are made for.
	maxPacket = 65535
)

// datagram is what a header says.
type datagram struct {
	kind   byte
	from   ID
	token  ID         // drawn for each question; its answer repeats it
	reply  int        // question: bytes of UDP payload that the answer shall have
	got    int        // answer: bytes of UDP payload that the question had
	source netip.Addr // answer: where the question came from
}

// overhead is the bytes of headers before the UDP payload.
func overhead(a netip.Addr) int {
	if a.Is4() {
		return 20 + 8
	}
	return 40 + 8
}

// smallest is the smallest packet that a datagram makes.
func smallest(a netip.Addr) int { return minData + overhead(a) }

// encode makes the datagram with size bytes, but no less than it needs.
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

// decode reads what encode makes; not ok is what does not come from this job.
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

// maxAnswers is the number of answers to one question: as many as an honest peer sends it.
// A recorded question that comes again, perhaps with the source address of a victim, gets no
// more, and is no evidence of where the peer is.
const maxAnswers = max(proofTries, searchTries)

// answerDatagrams answers questions until the socket is closed.
func (l *Listener) answerDatagrams() {
	buf := make([]byte, maxPacket)
	for {
		n, from, in, err := readDatagram(l.udp, buf)
		if err != nil {
			if l.isClosed() {
				return
			}
			l.hearComplaints()
			continue
		}
		d, ok := decode(&l.secret, buf[:n])
		if !ok || d.kind != question {
			continue
		}
		times := l.note(d.token)
		if times > maxAnswers {
			continue
		}
		source := from.Addr().Unmap().WithZone("")
		if times == 1 {
			l.sight(Sighting{ID: d.from, Source: source, Interface: in})
		}
		a := datagram{kind: answer, from: l.endpoint.ID, token: d.token, got: n, source: source}
		size := min(d.reply, maxPacket-overhead(source))
		// One that is too large for this host's own link is lost, like any other.
		b := a.encode(&l.secret, size)
		if _, err := l.udp.WriteToUDPAddrPort(b, from); err != nil { // perhaps that of an earlier answer
			l.hearComplaints()
			_, _ = l.udp.WriteToUDPAddrPort(b, from)
		}
	}
}

// hearComplaints keeps ICMP messages about answers that did not get through: they
// say the same of the way to that host as those about questions.
func (l *Listener) hearComplaints() {
	raw, err := l.udp.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		found, about := readICMP(int(fd))
		l.mu.Lock()
		defer l.mu.Unlock()
		for i, to := range about {
			if len(l.complaints) < maxSightings {
				l.complaints[to] = each(l.complaints[to], found[i:i+1])
			}
		}
	})
}

func (l *Listener) complaintsAbout(to netip.Addr) []ICMP {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.complaints[to.WithZone("")])
}

func (l *Listener) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}
