package mesh

import (
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// disablePacing switches a socket that is not yet connected from BBR to another congestion control, if
// BBR is the system's default. BBR paces packets with a timer, which halves the throughput if the
// round-trip time is a few microseconds, and the bursts of a reduction do not measure the
// network's capacity. Other defaults of the system remain in effect.
func disablePacing(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		name, err := unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		if err != nil || !strings.HasPrefix(name, "bbr") {
			return
		}
		// Reno is available on every system and to every user.
		for _, other := range []string{"cubic", "reno"} {
			if unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, other) == nil {
				return
			}
		}
	})
}
