package launch

import (
	"context"
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

// findFreePort returns a TCP port that is free on all addresses of this host. It prefers ports outside
// of the range that the kernel uses for outgoing connections, so that the port is still free when the
// user's program opens it a moment later. It tries ports in random order, so that jobs on the same node
// rarely collide. If it finds none, for example because another user occupies many ports, it returns a
// port that the kernel chooses.
func findFreePort() (int, error) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	low, high := 32768, 60999 // the kernel's default
	if err == nil {
		if _, err := fmt.Sscan(string(text), &low, &high); err != nil {
			return 0, fmt.Errorf("read range of ephemeral ports: %w", err)
		}
	}
	port, err := searchPort(low, high, tryPort)
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	return port, nil
}

// searchPort returns the first port that try accepts. It tries ports outside of the range from
// low to high, and finally 0, for which the kernel chooses a port.
func searchPort(low, high int, try func(port int) (int, error)) (int, error) {
	for range portTries {
		candidate := candidatePort(low, high, rand.IntN)
		if candidate == 0 {
			break
		}
		if port, err := try(candidate); err == nil {
			return port, nil
		}
	}
	return try(0)
}

// tryPort opens and closes a port on all addresses and returns the port. For port 0 the kernel
// chooses one.
func tryPort(port int) (int, error) {
	l, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(port)))
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// candidatePort returns a random port of at least firstPort that is not in the range from low
// to high. It returns 0 if there is no such port.
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

// agreeOnMaster returns the address of rank 0 on the agreed network and a port for the program's
// own rendezvous. Rank 0 finds the port. All ranks must call agreeOnMaster.
func (r *Rank) agreeOnMaster(ctx context.Context) (host string, port int, err error) {
	ctx, cancel := r.withJoinTimeout(ctx)
	defer cancel()
	var offer string
	if r.Info.Rank == 0 {
		// Most programs listen on all addresses.
		port, err := findFreePort()
		if err != nil {
			return "", 0, err
		}
		offer = net.JoinHostPort(r.Choice.Addr.String(), strconv.Itoa(port))
	}
	reply, err := r.Session.Exchange(ctx, roundMaster, []byte(offer))
	if err != nil {
		return "", 0, err
	}
	host, text, err := net.SplitHostPort(string(reply))
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil {
		return "", 0, fmt.Errorf("parse address of rank 0 %q: %w", reply, err)
	}
	return host, port, nil
}
