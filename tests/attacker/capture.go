//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// capture records the TCP payload that passes a network interface. It writes the payload to a file,
// one connection after the other, with each direction separate.
func capture(link, file string) error {
	iface, err := net.InterfaceByName(link)
	if err != nil {
		return err
	}
	all := int(binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL)))
	s, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM, all) // without link headers
	if err != nil {
		return err
	}
	defer unix.Close(s)
	if err := unix.Bind(s, &unix.SockaddrLinklayer{Protocol: uint16(all), Ifindex: iface.Index}); err != nil {
		return err
	}
	tenth := unix.NsecToTimeval(int64(100 * time.Millisecond))
	if err := unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tenth); err != nil {
		return err
	}
	_ = unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)

	streams := map[string][]byte{}
	over := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		buf := make([]byte, 1<<17)
		for {
			n, _, err := unix.Recvfrom(s, buf, 0)
			switch {
			case err == nil:
				if flow, payload, ok := tcpPayload(buf[:n]); ok {
					streams[flow] = append(streams[flow], payload...)
				}
				continue
			case errors.Is(err, unix.EINTR):
				continue
			}
			// The timeout has passed: everything that was sent before the end has been read.
			select {
			case <-over:
				return
			default:
			}
		}
	})
	fmt.Println("captures", link)
	if err := waitForEnd(); err != nil {
		return err
	}
	close(over)
	reading.Wait()
	var text []byte
	for _, payload := range streams {
		text = append(append(text, payload...), '\n')
	}
	fmt.Println("captured", len(streams), "streams of", len(text), "bytes")
	return os.WriteFile(file, text, 0o600)
}

// tcpPayload returns the payload of an IPv4 packet with TCP, and the addresses and ports that
// identify its connection.
func tcpPayload(p []byte) (flow string, payload []byte, ok bool) {
	if len(p) < 20 || p[0]>>4 != 4 || p[9] != unix.IPPROTO_TCP {
		return "", nil, false
	}
	ip, total := int(p[0]&15)*4, int(binary.BigEndian.Uint16(p[2:]))
	if total == 0 || total > len(p) {
		total = len(p) // a large packet that the interface would segment
	}
	if total < ip+20 {
		return "", nil, false
	}
	tcp := p[ip:total]
	header := int(tcp[12]>>4) * 4
	if header < 20 || header > len(tcp) {
		return "", nil, false
	}
	return string(slices.Concat(p[12:20], tcp[:4])), tcp[header:], true
}
