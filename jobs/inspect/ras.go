package inspect

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/environ"
	"github.com/ddpbatch/ddpbatch/internal/listeners"
	"github.com/ddpbatch/ddpbatch/jobs/process"
)

const (
	rasAddressVariable = "NCCL_RAS_ADDR"
	rasPort            = 28028 // of NCCL's RAS service (NCCL 2.24 and later), unless NCCL_RAS_ADDR is set
	rasTimeout         = 20 * time.Second
	rasCollectSeconds  = 5         // in which the service waits for other processes
	maxRAS             = 256 << 10 // bytes of an answer
	// maxRASNodes is the number of nodes that query the service. Each answer is about all ranks, but
	// the service may be in a process that does not respond.
	maxRASNodes       = 3
	nodeIndexVariable = "SLURM_NODEID"
)

// queryRAS sets the answer of NCCL's RAS service in the rank on this node that serves it, if any.
// It connects only to a socket on which a rank of the run listens, so the answer is not about
// another job.
func queryRAS(ctx context.Context, ranks []Rank, env []string) {
	if text, ok := environ.Lookup(env, nodeIndexVariable); ok {
		if index, err := strconv.Atoi(text); err == nil && index >= maxRASNodes {
			return
		}
	}
	ctx, cancel := context.WithTimeout(ctx, rasTimeout)
	defer cancel()
	for i := range ranks {
		addr, ok := findRAS(&ranks[i])
		if !ok {
			continue
		}
		answer, err := askRAS(ctx, addr)
		if err != nil {
			answer = fmt.Sprintf("no answer from %s: %v", addr, err)
		}
		ranks[i].RAS = answer
		return
	}
}

// findRAS returns the address on which a rank serves NCCL's RAS.
func findRAS(r *Rank) (netip.AddrPort, bool) {
	port := rasPort
	if text, ok := environ.Lookup(r.environ, rasAddressVariable); ok {
		if n, err := strconv.ParseUint(text[strings.LastIndexByte(text, ':')+1:], 10, 16); err == nil {
			port = int(n)
		}
	}
	found, _ := listeners.On(port)
	for _, l := range found {
		if serves, _ := process.HasSocket(r.PID, l.Inode); serves {
			return loopback(l.Addr), true
		}
	}
	return netip.AddrPort{}, false
}

// loopback returns an address of this host at which a socket accepts connections.
func loopback(addr netip.AddrPort) netip.AddrPort {
	switch addr.Addr() {
	case netip.IPv4Unspecified():
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), addr.Port())
	case netip.IPv6Unspecified():
		return netip.AddrPortFrom(netip.IPv6Loopback(), addr.Port())
	}
	return addr
}

// askRAS returns the status that NCCL's RAS service prints. The service reads commands in lines,
// answers TIMEOUT with OK, and closes the connection after the status.
func askRAS(ctx context.Context, addr netip.AddrPort) (string, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr.String())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if end, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(end); err != nil {
			return "", err
		}
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := fmt.Fprintf(conn, "TIMEOUT %d\n", rasCollectSeconds); err != nil {
		return "", err
	}
	in := bufio.NewReader(io.LimitReader(conn, maxRAS))
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	if line = strings.TrimSpace(line); !strings.EqualFold(line, "OK") {
		return "", fmt.Errorf("unexpected answer %q", line)
	}
	if _, err := io.WriteString(conn, "VERBOSE STATUS\n"); err != nil {
		return "", err
	}
	text, err := io.ReadAll(in)
	if err != nil && len(text) == 0 {
		return "", err
	}
	return string(text), nil
}
