package probe

import (
	"net/netip"
	"testing"
)

// extended returns a struct sock_extended_err followed by a sender's address.
func extended(origin, kind, code byte, sender []byte) []byte {
	return append([]byte{113, 0, 0, 0, origin, kind, code, 0, 0, 0, 0, 0, 0, 0, 0, 0}, sender...)
}

// TestParseExtendedError checks the sender, type, and code of ICMP errors from the socket's error
// queue.
func TestParseExtendedError(t *testing.T) {
	in4 := []byte{2, 0, 0, 0, 10, 2, 0, 254, 0, 0, 0, 0, 0, 0, 0, 0}
	in6 := append([]byte{10, 0, 0, 0, 0, 0, 0, 0, 0xfd}, append(make([]byte, 14), 1, 0, 0, 0, 0)...)
	tests := []struct {
		name string
		in   []byte
		want ICMP
		ok   bool
	}{
		{"ipv4", extended(2, 3, 13, in4), ICMP{From: netip.MustParseAddr("10.2.0.254"), Type: 3, Code: 13}, true},
		{"ipv6", extended(3, 1, 1, in6), ICMP{From: netip.MustParseAddr("fd00::1"), V6: true, Type: 1, Code: 1}, true},
		{"of this host itself", extended(1, 0, 0, in4), ICMP{}, false},
		{"cut off", extended(2, 3, 13, nil), ICMP{}, false},
	}
	for _, tt := range tests {
		if got, ok := parseExtendedError(tt.in); got != tt.want || ok != tt.ok {
			t.Errorf("%s: %+v %v, want %+v %v", tt.name, got, ok, tt.want, tt.ok)
		}
	}
}

// FuzzParseExtendedError checks that any control message is rejected or has the IP version of its
// origin.
func FuzzParseExtendedError(f *testing.F) {
	f.Add(extended(2, 3, 13, []byte{2, 0, 0, 0, 10, 2, 0, 254}))
	f.Add(extended(3, 1, 1, make([]byte, 28)))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if i, ok := parseExtendedError(b); ok && i.V6 != (b[4] == 3) {
			t.Errorf("%q is %+v", b, i)
		}
	})
}
