package netif

import (
	"fmt"
	"testing"
)

// TestSpeedOfCycle checks that a cycle of links with many ports, which only a file can have, does not
// take a time that grows with the number of paths: here 10^13.
func TestSpeedOfCycle(t *testing.T) {
	inv := Inventory{Links: []Link{{Index: 1, Name: "team0", Kind: "team", Flags: Up | Running, Oper: "up"}}}
	for i := range 2000 {
		inv.Links = append(inv.Links, Link{Index: 2 + i, Name: fmt.Sprint("v", i), Kind: "vlan", Parent: "team0", Master: "team0"})
	}
	inv.Links = append(inv.Links, Link{Index: 3000, Name: "eth0", ARPHRD: "ether", Speed: 25000, Master: "v7"})
	h := newHost(&inv, "a")
	if got := h.speed(h.byName["team0"], maxNesting); got != -1 {
		t.Errorf("speed of links whose parent is a cycle: got %d, want -1", got)
	}
	h.byName["v7"].Parent = ""
	h = newHost(&Inventory{Links: h.links}, "a")
	if got := h.speed(h.byName["team0"], maxNesting); got != 25000 {
		t.Errorf("speed of a port of a port: got %d, want 25000", got)
	}
}
