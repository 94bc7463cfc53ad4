package rendezvous

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// A Peer is the address at which a rank listens, and the node that it runs on.
type Peer struct {
	Addr netip.AddrPort
	Node int
}

// Peers sends own, the peer of this rank, to all ranks in a round that [FromPeers] decides. It returns
// the peers of all ranks, by rank.
func (s *Session) Peers(ctx context.Context, round string, own Peer) ([]Peer, error) {
	payload, err := appendPeers(nil, []Peer{own})
	if err != nil {
		return nil, fmt.Errorf("exchange %q: %w", round, err)
	}
	reply, err := s.Exchange(ctx, round, payload)
	if err != nil {
		return nil, err
	}
	all, err := parsePeers(reply, s.world)
	if err != nil {
		return nil, fmt.Errorf("where the ranks listen: %w", err)
	}
	return all, nil
}

// FromPeers decides the round of [Session.Peers]. It returns the peers of all ranks to every
// rank. All replies share one slice.
func FromPeers(payloads [][]byte) ([][]byte, error) {
	var all []Peer
	for rank, p := range payloads {
		one, err := parsePeers(p, 1)
		if err != nil {
			return nil, fmt.Errorf("where rank %d listens: %w", rank, err)
		}
		all = append(all, one...)
	}
	table, err := appendPeers(nil, all)
	if err != nil {
		return nil, err
	}
	return toAll(table, len(payloads)), nil
}

// appendPeers encodes runs of consecutive ranks with equal address and node. Each run has the
// number of ranks and the node as varints, the length of the address as a byte, the address as
// [netip.Addr.MarshalBinary] encodes it, and two little-endian bytes per port.
func appendPeers(b []byte, peers []Peer) ([]byte, error) {
	for len(peers) > 0 {
		first, n := peers[0], 1
		for n < len(peers) && peers[n].Node == first.Node && peers[n].Addr.Addr() == first.Addr.Addr() {
			n++
		}
		addr, err := first.Addr.Addr().MarshalBinary()
		if err != nil {
			return nil, err
		}
		if len(addr) > 255 || first.Node < 0 {
			return nil, fmt.Errorf("address %s of node %d cannot be encoded", first.Addr, first.Node)
		}
		b = binary.AppendUvarint(b, uint64(n))
		b = binary.AppendUvarint(b, uint64(first.Node))
		b = append(append(b, byte(len(addr))), addr...)
		for _, p := range peers[:n] {
			b = binary.LittleEndian.AppendUint16(b, p.Addr.Port())
		}
		peers = peers[n:]
	}
	return b, nil
}

var errPeers = errors.New("the table of addresses is damaged")

// parsePeers decodes the output of appendPeers for the given number of ranks.
func parsePeers(b []byte, ranks int) ([]Peer, error) {
	peers := make([]Peer, 0, min(ranks, len(b)/2))
	number := func(most int) int {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > uint64(most) {
			return -1
		}
		b = b[n:]
		return int(v)
	}
	for len(b) > 0 {
		n := number(ranks - len(peers))
		node := number(1<<31 - 1)
		if n < 1 || node < 0 || len(b) == 0 || len(b) < 1+int(b[0])+2*n {
			return nil, errPeers
		}
		var addr netip.Addr
		if err := addr.UnmarshalBinary(b[1:][:b[0]]); err != nil || !addr.IsValid() {
			return nil, errPeers
		}
		b = b[1+int(b[0]):]
		for i := range n {
			peers = append(peers, Peer{netip.AddrPortFrom(addr, binary.LittleEndian.Uint16(b[2*i:])), node})
		}
		b = b[2*n:]
	}
	if len(peers) != ranks {
		return nil, fmt.Errorf("%w: it has %d ranks, want %d", errPeers, len(peers), ranks)
	}
	return peers, nil
}
