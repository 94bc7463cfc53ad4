package listeners

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

const header = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"

// line returns a line of a table, for a socket of user 1002.
func line(addr, state string) string {
	return "   0: " + addr + " 00000000:0000 " + state + " 00000000:00000000 00:00000000 00000000  1002        0 4242 1 0000000000000000 100 0 0 10 0\n"
}

// TestOnFindsOwnListener checks that On finds a listener on each kind of address, and that it
// belongs to this user.
func TestOnFindsOwnListener(t *testing.T) {
	for _, tt := range []struct{ network, listen, addr string }{
		{"tcp4", "127.0.0.1:0", "127.0.0.1"},
		{"tcp4", "0.0.0.0:0", "127.0.0.1"},
		{"tcp6", "[::1]:0", "::1"},
		{"tcp", "[::]:0", "127.0.0.1"},
	} {
		l, err := net.Listen(tt.network, tt.listen)
		if err != nil && tt.network != "tcp4" {
			t.Logf("%s: no IPv6: %v", tt.listen, err)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		at := l.Addr().(*net.TCPAddr)
		found, err := On(at.Port)
		if err != nil || len(found) != 1 {
			t.Errorf("%s: got %v, %v", tt.listen, found, err)
		} else if f := found[0]; int(f.Addr.Port()) != at.Port || f.UID != os.Geteuid() || f.Inode == 0 || !f.Accepts(netip.MustParseAddr(tt.addr)) {
			t.Errorf("%s: got %+v", tt.listen, f)
		}
		l.Close()
		if found, err := On(at.Port); err != nil || len(found) != 0 {
			t.Errorf("%s after close: got %v, %v", tt.listen, found, err)
		}
	}
}

// ipv6 returns an error if this machine has no IPv6.
func ipv6() error {
	l, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		return err
	}
	return l.Close()
}

// requires skips the test if err shows that this machine lacks what the test needs. In CI, it fails
// the test.
func requires(t *testing.T, err error) {
	t.Helper()
	switch {
	case err != nil && os.Getenv("CI") != "":
		t.Fatal(err)
	case err != nil:
		t.Skip(err)
	}
}

// listenOnAll listens on each host, all on the same port, until the test ends.
func listenOnAll(t *testing.T, hosts []string) (listeners []net.Listener) {
	t.Helper()
	var err error
	for range 20 { // another process may have the port on one of the hosts
		port := "0"
		listeners = nil
		for _, host := range hosts {
			var l net.Listener
			if l, err = net.Listen("tcp", net.JoinHostPort(host, port)); err != nil {
				break
			}
			t.Cleanup(func() { l.Close() })
			listeners = append(listeners, l)
			_, port, _ = net.SplitHostPort(l.Addr().String())
		}
		if err == nil {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return listeners
}

// TestSourcesAgree checks that netlink and /proc report the same listeners, for each kind of
// address, and without connections to the port.
func TestSourcesAgree(t *testing.T) {
	for _, tt := range []struct {
		name  string
		hosts []string
	}{
		{"IPv4", []string{"127.0.0.1"}},
		{"all of IPv4", []string{"0.0.0.0"}},
		{"IPv6", []string{"::1"}},
		{"dual-stack", []string{"::"}},
		{"several", []string{"127.0.0.1", "127.0.0.2", "::1"}},
	} {
		if err := ipv6(); err != nil && strings.Contains(strings.Join(tt.hosts, " "), ":") {
			t.Logf("%s: no IPv6: %v", tt.name, err)
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			port := 0
			for _, l := range listenOnAll(t, tt.hosts) {
				port = l.Addr().(*net.TCPAddr).Port
				conn, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
			}
			got, err := query(port)
			requires(t, err)
			want, err := readTables(port)
			all, errAll := All()
			all = slices.DeleteFunc(all, func(l Listener) bool { return int(l.Addr.Port()) != port })
			for _, list := range [][]Listener{got, want, all} {
				slices.SortFunc(list, func(a, b Listener) int { return cmp.Compare(a.Inode, b.Inode) })
			}
			if err != nil || len(got) != len(tt.hosts) || !slices.Equal(got, want) {
				t.Errorf("netlink: %v, /proc: %v, %v; want %d listeners", got, want, err, len(tt.hosts))
			}
			if errAll != nil || !slices.Equal(all, want) {
				t.Errorf("of all ports: got %v, %v, want %v", all, errAll, want)
			}
		})
	}
}

// TestFallback checks that On finds a listener if a seccomp filter forbids netlink.
func TestFallback(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	var found []Listener
	var errFilter, errQuery, errOn error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine
		if errFilter = forbidSockets(); errFilter == nil {
			_, errQuery = query(port)
			found, errOn = On(port)
		}
	}()
	<-done
	requires(t, errFilter)
	if !errors.Is(errQuery, unix.EPERM) {
		t.Errorf("netlink: got %v, want %v", errQuery, unix.EPERM)
	}
	if errOn != nil || len(found) != 1 || int(found[0].Addr.Port()) != port {
		t.Errorf("got %v, %v; want a listener on port %d", found, errOn, port)
	}
}

// forbidSockets makes socket(2) fail in this thread.
func forbidSockets() error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number of the system call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.SYS_SOCKET},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}

// TestAppendMessage checks which messages of the kernel count. It may report sockets that were not
// requested.
func TestAppendMessage(t *testing.T) {
	message := func(change func(*diagMessage)) []byte {
		m := diagMessage{Family: unix.AF_INET, State: tcpListen, UID: 1002, Inode: 4242}
		m.ID.SourcePort, m.ID.Source = [2]byte{0x5B, 0xA0}, [16]byte{127, 0, 0, 1}
		change(&m)
		b, err := binary.Append(nil, binary.NativeEndian, m)
		if err != nil {
			t.Fatal(err)
		}
		return append(b, 0, 0, 0, 0) // attributes
	}
	for _, tt := range []struct {
		name   string
		change func(*diagMessage)
		want   string
	}{
		{"IPv4", func(*diagMessage) {}, "[{127.0.0.1:23456 1002 4242}]"},
		{"IPv6", func(m *diagMessage) { m.Family, m.ID.Source = unix.AF_INET6, [16]byte{15: 1} }, "[{[::1]:23456 1002 4242}]"},
		{"IPv4 in IPv6", func(m *diagMessage) {
			m.Family, m.ID.Source = unix.AF_INET6, [16]byte{10: 0xff, 11: 0xff, 12: 127, 15: 1}
		}, "[{127.0.0.1:23456 1002 4242}]"},
		{"different port", func(m *diagMessage) { m.ID.SourcePort[1]++ }, "[]"},
		{"connection", func(m *diagMessage) { m.State = 1 }, "[]"},
	} {
		if got, err := appendMessage(nil, message(tt.change), 23456); err != nil || fmt.Sprint(got) != tt.want {
			t.Errorf("%s: got %v, %v; want %s", tt.name, got, err, tt.want)
		}
	}
	if got, err := appendMessage(nil, make([]byte, 71), 0); err == nil {
		t.Errorf("short message: got %v", got)
	}
}

// TestParse checks which lines of a table count.
func TestParse(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the tables below are of a little-endian host")
	}
	const loopback, other = "0100007F:5BA0", "0100007F:5BA1" // port 23456 and the next one
	for _, tt := range []struct {
		name, table string
		want        string
		fails       bool
	}{
		{"empty", "", "[]", false},
		{"header only", header, "[]", false},
		{"one address", header + line(loopback, "0A"), "[{127.0.0.1:23456 1002 4242}]", false},
		{"all addresses", header + line("00000000:5BA0", "0A"), "[{0.0.0.0:23456 1002 4242}]", false},
		{"IPv6", header + line("00000000000000000000000001000000:5BA0", "0A"), "[{[::1]:23456 1002 4242}]", false},
		{"IPv4 in IPv6", header + line("0000000000000000FFFF00000100007F:5BA0", "0A"), "[{127.0.0.1:23456 1002 4242}]", false},
		{"different port", header + line(other, "0A"), "[]", false},
		{"connection", header + line(loopback, "01"), "[]", false},
		{"request before a listener", header + line(loopback, "03") + line(loopback, "0A"), "[{127.0.0.1:23456 1002 4242}]", false},
		{"damaged line after the listeners", header + line(loopback, "0A") + line(other, "01") + "x", "[{127.0.0.1:23456 1002 4242}]", false},
		{"short line", header + "0: x\n", "", true},
		{"short address", header + line("0100:5BA0", "0A"), "", true},
		{"no port", header + line("0100007F", "0A"), "[]", false},
		{"no inode", header + strings.Replace(line(loopback, "0A"), " 4242 ", " x ", 1), "", true},
		{"no user", header + strings.Replace(line(loopback, "0A"), " 1002 ", " alice ", 1), "", true},
	} {
		got, err := parse(strings.NewReader(tt.table), 23456)
		if (err != nil) != tt.fails || err == nil && fmt.Sprint(got) != tt.want {
			t.Errorf("%s: got %v, %v", tt.name, got, err)
		}
	}
}

// TestParseAnyPort checks that a search without a port gives the listeners on all ports.
func TestParseAnyPort(t *testing.T) {
	table := header + line("0100007F:5BA0", "0A") + line("0100007F:5BA1", "0A") + line("0100007F:5BA2", "01")
	if found, err := parse(strings.NewReader(table), anyPort); err != nil || len(found) != 2 {
		t.Errorf("got %v, %v, want 2 listeners", found, err)
	}
}

// repeated is a reader of many equal lines.
type repeated struct {
	line       string
	left, done int
}

func (r *repeated) Read(b []byte) (n int, err error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	for n < min(len(b), r.left) {
		n += copy(b[n:min(len(b), r.left)], r.line[(r.done+n)%len(r.line):])
	}
	r.done, r.left = r.done+n, r.left-n
	return n, nil
}

// TestParseIsBounded checks that a table of many listeners ends the search, and that connections
// after the listeners are not read.
func TestParseIsBounded(t *testing.T) {
	one := line("0100007F:5BA1", "0A")
	if _, err := parse(io.MultiReader(strings.NewReader(header), &repeated{line: one, left: (maxListeners + 1) * len(one)}), 23456); !errors.Is(err, errTooMany) {
		t.Errorf("many listeners: %v", err)
	}
	connections := strings.NewReader(header + one + strings.Repeat(line("0100007F:5BA1", "01"), 10_000))
	if _, err := parse(connections, 23456); err != nil || connections.Len() < 1_000_000 {
		t.Errorf("many connections: %v, %d bytes are left", err, connections.Len())
	}
}

// TestAccepts checks which connections a listener can receive.
func TestAccepts(t *testing.T) {
	for _, tt := range []struct {
		listens, addr string
		want          bool
	}{
		{"10.0.0.1:1", "10.0.0.1", true},
		{"10.0.0.1:1", "10.0.0.2", false},
		{"10.0.0.1:1", "::ffff:10.0.0.1", true},
		{"0.0.0.0:1", "10.0.0.2", true},
		{"0.0.0.0:1", "fd00::1", false},
		{"[::]:1", "10.0.0.2", true},
		{"[::]:1", "fd00::1", true},
		{"[fe80::1]:1", "fe80::1%eth0", true},
	} {
		l := Listener{Addr: netip.MustParseAddrPort(tt.listens)}
		if got := l.Accepts(netip.MustParseAddr(tt.addr)); got != tt.want {
			t.Errorf("%s accepts %s: got %v", tt.listens, tt.addr, got)
		}
	}
}

// TestUserName checks names in messages.
func TestUserName(t *testing.T) {
	if got := UserName(0); got != "root (UID 0)" {
		t.Errorf("root: got %q", got)
	}
	const unknown = 3_999_999_999
	if got := UserName(unknown); got != "UID 3999999999" {
		t.Errorf("user without a name: got %q", got)
	}
}

// FuzzParse checks that a table of any content neither crashes the parser nor gives a listener on a
// different port.
func FuzzParse(f *testing.F) {
	f.Add(header+line("0100007F:5BA0", "0A"), 23456)
	f.Add(header+line("00000000000000000000000001000000:5BA0", "0A")+line("0100007F:5BA0", "01"), 23456)
	f.Fuzz(func(t *testing.T, table string, port int) {
		found, err := parse(strings.NewReader(table), port)
		for _, l := range found {
			if port != anyPort && int(l.Addr.Port()) != port || err != nil {
				t.Errorf("port %d: %+v, %v", port, l, err)
			}
		}
	})
}
