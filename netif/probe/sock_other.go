//go:build !linux

package probe

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
)

var errNeedsLinux = errors.New("not supported on this system")

func bindToDevice(string) func(network, address string, c syscall.RawConn) error {
	return func(string, string, syscall.RawConn) error { return errNeedsLinux }
}

func listenDatagrams(context.Context, netip.Addr) (*net.UDPConn, error) { return nil, nil }

func dialDatagrams(context.Context, netip.Addr, netip.AddrPort) (*net.UDPConn, error) {
	return nil, errNeedsLinux
}

func readDatagram(*net.UDPConn, []byte) (n int, from netip.AddrPort, link string, err error) {
	return 0, from, "", errNeedsLinux
}

func readICMP(int) ([]ICMP, []netip.Addr) { return nil, nil }

type errorQueue struct{}

func (*errorQueue) duplicate(syscall.RawConn) error { return nil }
func (*errorQueue) read() []ICMP                    { return nil }
func (*errorQueue) close()                          {}

func isDummy(int) bool { return false }

func queryKernel(context.Context, netip.Addr, netip.Addr) Kernel { return Kernel{} }

// outcomeOf returns the outcome for the errors that the standard library distinguishes.
func outcomeOf(err error) Outcome {
	switch {
	case errors.Is(err, errNeedsLinux):
		return NotTried
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return Reset
	case errors.Is(err, syscall.ETIMEDOUT):
		return TimedOut
	}
	return Failed
}
