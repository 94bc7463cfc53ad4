package nccl

import (
	"testing"

	"github.com/ddpbatch/ddpbatch/netif"
)

// TestDefaultInterface checks the interface that NCCL selects without variables: by its name, state,
// address family, and position.
func TestDefaultInterface(t *testing.T) {
	type link struct {
		name, addr string
		down       bool
	}
	for _, tt := range []struct {
		name  string
		links []link
		want  string
	}{
		{"none", nil, ""},
		{"InfiniBand", []link{{name: "lo", addr: "127.0.0.1/8"}, {name: "eth0", addr: "10.0.0.1/24"}, {name: "ib0", addr: "10.1.0.1/24"}}, "ib0"},
		{"InfiniBand with IPv6", []link{{name: "eth0", addr: "10.0.0.1/24"}, {name: "ib0", addr: "fd00::1/64"}}, "ib0"},
		{"InfiniBand without an address", []link{{name: "ib0"}, {name: "eth0", addr: "10.0.0.1/24"}}, "eth0"},
		{"InfiniBand that is down", []link{{name: "ib0", addr: "10.1.0.1/24", down: true}, {name: "eth0", addr: "10.0.0.1/24"}}, "eth0"},
		{"first of two", []link{{name: "eth1", addr: "10.1.0.1/24"}, {name: "eth0", addr: "10.0.0.1/24"}}, "eth1"},
		{"IPv4 before IPv6", []link{{name: "eth0", addr: "fd00::1/64"}, {name: "eth1", addr: "10.0.0.1/24"}}, "eth1"},
		{"only IPv6", []link{{name: "lo", addr: "127.0.0.1/8"}, {name: "eth0", addr: "fd00::1/64"}}, "eth0"},
		{"other names before docker", []link{{name: "docker0", addr: "172.17.0.1/16"}, {name: "lo", addr: "127.0.0.1/8"}, {name: "eth0", addr: "10.0.0.1/24"}}, "eth0"},
		{"docker before the loopback", []link{{name: "virbr0", addr: "192.168.122.1/24"}, {name: "lo", addr: "127.0.0.1/8"}, {name: "docker0", addr: "172.17.0.1/16"}}, "docker0"},
		{"loopback before virbr", []link{{name: "virbr0", addr: "192.168.122.1/24"}, {name: "lo", addr: "127.0.0.1/8"}}, "lo"},
		{"only virbr", []link{{name: "virbr0", addr: "192.168.122.1/24"}}, "virbr0"},
		{"IPv6 loopback", []link{{name: "lo", addr: "::1/128"}}, ""},
	} {
		h := newHost("n1")
		for _, l := range tt.links {
			spec := netif.Link{Name: l.name}
			if l.down {
				spec.Oper = "down"
			}
			if l.addr == "" {
				h.link(spec)
			} else {
				h.link(spec, l.addr)
			}
		}
		if got := DefaultInterface(h.Inventory); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
