package listeners

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// A diagID identifies a socket: struct inet_diag_sockid (linux/inet_diag.h).
type diagID struct {
	SourcePort, DestinationPort [2]byte  // in network byte order
	Source, Destination         [16]byte // an IPv4 address is in the first 4 bytes
	Interface                   uint32
	Cookie                      [2]uint32
}

// A diagRequest selects sockets: struct inet_diag_req_v2.
type diagRequest struct {
	Family, Protocol, Extensions, _ uint8
	States                          uint32 // bits
	ID                              diagID
}

// A diagMessage describes a socket: struct inet_diag_msg. Attributes follow.
type diagMessage struct {
	Family, State, Timer, Retransmits uint8
	ID                                diagID
	Expires, ReceiveQueue, SendQueue  uint32
	UID, Inode                        uint32
}

// tcpListen is the state of a listening socket (include/net/tcp_states.h).
const tcpListen = 10

// query requests the listeners on a port from the kernel (sock_diag(7)).
func query(port int) ([]Listener, error) {
	var found []Listener
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		selection := diagRequest{Family: family, Protocol: unix.IPPROTO_TCP, States: 1 << tcpListen}
		binary.BigEndian.PutUint16(selection.ID.SourcePort[:], uint16(max(0, port))) // 0 for all
		data, err := binary.Append(nil, binary.NativeEndian, selection)
		if err != nil {
			return nil, err
		}
		request := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
		request.AddRawData(data)
		var invalid error
		err = request.ExecuteIter(unix.NETLINK_SOCK_DIAG, nl.SOCK_DIAG_BY_FAMILY, func(message []byte) bool {
			if len(found) == maxListeners {
				invalid = errTooMany
				return false
			}
			found, invalid = appendMessage(found, message, port)
			return invalid == nil
		})
		if err == nil {
			err = invalid
		}
		if err != nil {
			return nil, fmt.Errorf("query listening sockets: %w", err)
		}
	}
	return found, nil
}

// appendMessage appends the socket in a message if it listens on the port. A kernel may ignore the
// port in the request.
func appendMessage(found []Listener, message []byte, port int) ([]Listener, error) {
	var m diagMessage
	if _, err := binary.Decode(message, binary.NativeEndian, &m); err != nil {
		return nil, fmt.Errorf("message of %d bytes: %w", len(message), err)
	}
	addr := netip.AddrFrom16(m.ID.Source).Unmap()
	if m.Family == unix.AF_INET {
		addr = netip.AddrFrom4([4]byte(m.ID.Source[:4]))
	}
	at := netip.AddrPortFrom(addr, binary.BigEndian.Uint16(m.ID.SourcePort[:]))
	if m.State != tcpListen || port != anyPort && int(at.Port()) != port {
		return found, nil
	}
	return append(found, Listener{at, int(m.UID), uint64(m.Inode)}), nil
}
