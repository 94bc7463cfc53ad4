package launch

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
)

const (
	// firstPort is above the well-known services of a node.
	firstPort = 20000
	// portTries bounds the search; nearly every port is free.
	portTries = 1000
)

// freePort finds a TCP port that is free on addr and outside the range from
// which the kernel takes ports for outgoing connections, so that it is still
// free when the user's program opens it a moment later. It starts at a random
// place: jobs that share a node seldom meet.
func freePort(addr string) (int, error) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	low, high := 32768, 60999 // the kernel's default
	if err == nil {
		if _, err := fmt.Sscan(string(text), &low, &high); err != nil {
			return 0, fmt.Errorf("read the kernel's range of ephemeral ports: %w", err)
		}
	}
	var last error
	for range portTries {
		port := candidatePort(low, high, rand.IntN)
		if port == 0 {
			return 0, fmt.Errorf("the kernel takes ports %d to %d for outgoing connections; none from %d on is left for a rendezvous", low, high, firstPort)
		}
		l, err := net.Listen("tcp", net.JoinHostPort(addr, strconv.Itoa(port)))
		if err != nil {
			last = err
			continue
		}
		return port, l.Close()
	}
	return 0, fmt.Errorf("find a free port on %s: %w", addr, last)
}

// candidatePort draws a port from firstPort on that is not within low to high;
// 0 when there is none.
func candidatePort(low, high int, draw func(int) int) int {
	below := max(0, min(low, 65536)-firstPort)
	above := max(0, 65535-max(high, firstPort-1))
	if below+above == 0 {
		return 0
	}
	n := draw(below + above)
	if n < below {
		return firstPort + n
	}
	return max(high+1, firstPort) + n - below
}
