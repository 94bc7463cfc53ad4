package mesh

import (
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// unpaced takes a socket that is not connected yet from BBR, if that is the system's
// congestion control: it lets packets go by a timer, which halves the speed where the
// way there and back takes microseconds, and the bursts of a reduction are no sample of
// what the network can do. Every other choice of the system stays.
func unpaced(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		name, err := unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		if err != nil || !strings.HasPrefix(name, "bbr") {
			return
		}
		// Reno is there on every system, and open to every user.
		for _, other := range []string{"cubic", "reno"} {
			if unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, other) == nil {
				return
			}
		}
	})
}
