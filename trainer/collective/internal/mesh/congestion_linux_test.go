package mesh

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCongestionControl checks that connections do not use a paced congestion control, whatever
// the system's default is.
func TestCongestionControl(t *testing.T) {
	for _, name := range []string{"bbr", "reno"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		raw, err := l.(*net.TCPListener).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var set, get error
		var got string
		raw.Control(func(fd uintptr) { set = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, name) })
		if set != nil {
			t.Logf("%s is not in this kernel, or not for this user: %v", name, set)
			continue
		}
		if err := disablePacing("", "", raw); err != nil {
			t.Fatal(err)
		}
		raw.Control(func(fd uintptr) { got, get = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION) })
		if get != nil || name == "bbr" && got != "cubic" && got != "reno" || name != "bbr" && got != name {
			t.Errorf("%s became %q, %v", name, got, get)
		}
	}
}
