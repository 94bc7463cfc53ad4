package probe

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// control adapts a function of a file descriptor to the Control fields of package net.
func control(f func(fd int) error) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var err error
		if outer := c.Control(func(fd uintptr) { err = f(int(fd)) }); outer != nil {
			return outer
		}
		return err
	}
}

// bindToDevice makes a socket send and receive by one link only. Since Linux 5.7 it needs no
// privilege. Before, it fails with EPERM without CAP_NET_RAW.
func bindToDevice(name string) func(network, address string, c syscall.RawConn) error {
	return control(func(fd int) error {
		return unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, name)
	})
}

// unfragmented sets the options of a datagram socket. The socket forbids fragmentation and
// sends up to the link's MTU, regardless of the path MTU that the kernel has cached. It
// reports the receiving link of each datagram and retains ICMP errors in its error queue.
func unfragmented(is4 bool) func(network, address string, c syscall.RawConn) error {
	type option struct{ level, name, value int }
	options := []option{
		{unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE},
		{unix.IPPROTO_IPV6, unix.IPV6_DONTFRAG, 1},
		{unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1},
		{unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1},
	}
	if is4 {
		options = []option{
			{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE},
			{unix.IPPROTO_IP, unix.IP_PKTINFO, 1},
			{unix.IPPROTO_IP, unix.IP_RECVERR, 1},
		}
	}
	return control(func(fd int) error {
		for _, o := range options {
			if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
				return err
			}
		}
		return nil
	})
}

// socketBuffer holds a full round of the path MTU search, in bytes. If the kernel's limit is
// lower, the search repeats the lost datagrams.
const socketBuffer = 4 << 20

func listenDatagrams(ctx context.Context, addr netip.Addr) (*net.UDPConn, error) {
	lc := net.ListenConfig{Control: unfragmented(addr.Is4())}
	conn, err := lc.ListenPacket(ctx, "udp", netip.AddrPortFrom(addr, 0).String())
	if err != nil {
		return nil, err
	}
	udp := conn.(*net.UDPConn)
	_ = udp.SetReadBuffer(socketBuffer)
	return udp, nil
}

// dialDatagrams opens a socket to one peer.
func dialDatagrams(ctx context.Context, from netip.Addr, to netip.AddrPort) (*net.UDPConn, error) {
	d := net.Dialer{
		LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)),
		Control:   unfragmented(from.Is4()),
	}
	conn, err := d.DialContext(ctx, "udp", to.String())
	if err != nil {
		return nil, err
	}
	udp := conn.(*net.UDPConn)
	_ = udp.SetReadBuffer(socketBuffer)
	return udp, nil
}

// readDatagram reads a datagram and returns the link on which it arrived.
func readDatagram(conn *net.UDPConn, buf []byte) (n int, from netip.AddrPort, link string, err error) {
	oob := make([]byte, 128)
	n, oobn, _, from, err := conn.ReadMsgUDPAddrPort(buf, oob)
	if err != nil {
		return 0, from, "", err
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return n, from, "", nil
	}
	for _, m := range msgs {
		index := 0
		switch {
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= 4:
			index = int(nativeUint32(m.Data))
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= 20:
			index = int(nativeUint32(m.Data[16:]))
		}
		if i, err := net.InterfaceByIndex(index); index > 0 && err == nil {
			link = i.Name
		}
	}
	return n, from, link, nil
}

// readICMP reads the messages in a socket's error queue (IP_RECVERR in ip(7)): struct
// sock_extended_err, followed by the sender's address. about holds the destination of the
// packet that caused each message.
func readICMP(fd int) (found []ICMP, about []netip.Addr) {
	buf, oob := make([]byte, 64), make([]byte, 512)
	for len(found) < 16 {
		_, oobn, _, to, err := unix.Recvmsg(fd, buf, oob, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
		if err != nil {
			return found, about
		}
		msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil {
			return found, about
		}
		for _, m := range msgs {
			if m.Header.Type != unix.IP_RECVERR && m.Header.Type != unix.IPV6_RECVERR {
				continue
			}
			if i, ok := parseExtendedError(m.Data); ok {
				found, about = append(found, i), append(about, sockaddrOf(to))
			}
		}
	}
	return found, about
}

func sockaddrOf(s unix.Sockaddr) netip.Addr {
	switch s := s.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(s.Addr)
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(s.Addr).Unmap()
	}
	return netip.Addr{}
}

// An errorQueue is a duplicate descriptor of a socket. It makes the error queue readable after
// a connect failed and closed the first descriptor.
type errorQueue struct{ fd int }

// duplicate duplicates the descriptor of a socket that is about to connect.
func (q *errorQueue) duplicate(c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		if again, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0); err == nil {
			q.close()
			q.fd = again
		}
	})
}

func (q *errorQueue) read() []ICMP {
	if q.fd <= 0 {
		return nil
	}
	found, _ := readICMP(q.fd)
	return found
}

func (q *errorQueue) close() {
	if q.fd > 0 {
		unix.Close(q.fd)
		q.fd = 0
	}
}

func parseExtendedError(b []byte) (i ICMP, ok bool) {
	const originICMP, originICMP6, size = 2, 3, 16
	if len(b) < size+4 || b[4] != originICMP && b[4] != originICMP6 {
		return i, false
	}
	i = ICMP{V6: b[4] == originICMP6, Type: b[5], Code: b[6]}
	switch b = b[size:]; { // a struct sockaddr_in or sockaddr_in6
	case !i.V6 && len(b) >= 8:
		i.From = netip.AddrFrom4([4]byte(b[4:8]))
	case i.V6 && len(b) >= 24:
		i.From = netip.AddrFrom16([16]byte(b[8:24]))
	}
	return i, true
}

func outcomeOf(err error) Outcome {
	for errno, outcome := range map[unix.Errno]Outcome{
		unix.ECONNREFUSED: Refused, unix.ECONNRESET: Reset, unix.EPIPE: Reset,
		unix.ETIMEDOUT: TimedOut, unix.EHOSTUNREACH: Unreachable, unix.ENETUNREACH: NoRoute,
		unix.EACCES: Prohibited, unix.EPERM: Prohibited, unix.EINVAL: Blackhole,
		unix.EADDRNOTAVAIL: NoAddress, unix.ENETDOWN: LinkDown, unix.ENODEV: LinkDown,
	} {
		if errors.Is(err, errno) {
			return outcome
		}
	}
	return Failed
}
