package watch

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// TestChanges checks the events for each change of an interface.
func TestChanges(t *testing.T) {
	addrs := func(list ...string) map[netip.Prefix]bool {
		m := map[netip.Prefix]bool{}
		for _, a := range list {
			m[netip.MustParsePrefix(a)] = true
		}
		return m
	}
	base := state{name: "hsn0", index: 7, up: true, carrier: true, oper: "up", mtu: 9000, addrs: addrs("10.2.0.1/24")}
	with := func(change func(*state)) state {
		s := base
		s.addrs = maps.Clone(base.addrs)
		change(&s)
		return s
	}
	tests := []struct {
		name          string
		before, after state
		want          []string
	}{
		{"nothing", base, base, nil},
		{"still gone", state{name: "hsn0"}, state{name: "hsn0"}, nil},
		{"down takes the carrier with it", base, with(func(s *state) { s.up, s.carrier, s.oper = false, false, "down" }), []string{"link down"}},
		{"up", with(func(s *state) { s.up, s.carrier = false, false }), base, []string{"link up"}},
		{"up without a cable", with(func(s *state) { s.up, s.carrier = false, false }), with(func(s *state) { s.carrier = false }), []string{"link up, no carrier"}},
		{"cable out", base, with(func(s *state) { s.carrier, s.oper = false, "lowerlayerdown" }), []string{"carrier lost"}},
		{"cable in", with(func(s *state) { s.carrier = false }), base, []string{"carrier is back"}},
		{"waits for another layer", base, with(func(s *state) { s.oper = "dormant" }), []string{"operational state changed from up to dormant"}},
		{"mtu", base, with(func(s *state) { s.mtu = 1500 }), []string{"mtu changed from 9000 to 1500"}},
		{"renamed", base, with(func(s *state) { s.name = "eth5" }), []string{"renamed from hsn0 to eth5"}},
		{"into a bond", base, with(func(s *state) { s.master = 3 }), []string{"became a part of interface 3"}},
		{"out of a bond", with(func(s *state) { s.master = 3 }), base, []string{"is no longer a part of interface 3"}},
		{"to another bond", with(func(s *state) { s.master = 3 }), with(func(s *state) { s.master = 4 }), []string{"moved from interface 3 to interface 4"}},
		{"another address", base, with(func(s *state) { s.addrs = addrs("10.2.0.9/24", "fd00::1/64") }),
			[]string{"address 10.2.0.1/24 removed", "address 10.2.0.9/24 added", "address fd00::1/64 added"}},
		{"gone", base, state{name: "hsn0"}, []string{"interface gone"}},
		{"back", state{name: "hsn0"}, with(func(s *state) { s.index, s.up = 9, false }), []string{"interface is back: down, mtu 9000, 10.2.0.1/24"}},
		{"another one, unseen", base, with(func(s *state) { s.index = 9; s.addrs = nil }), []string{"interface gone", "interface is back: up, mtu 9000, no address yet"}},
	}
	for _, tt := range tests {
		if got := changes(tt.before, tt.after); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestEventString(t *testing.T) {
	e := Event{Time: time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC), Interface: "hsn0", What: "carrier lost"}
	if got, want := e.String(), "03:04:05.006 hsn0: carrier lost"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
