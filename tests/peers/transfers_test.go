package main

import (
	"net"
	"os"
	"strings"
	"testing"
)

// TestTransfersHaveEqualSizes checks that only measurements of the same size are compared.
func TestTransfersHaveEqualSizes(t *testing.T) {
	var found transfers
	l := link{9000, "reno"}
	for _, pair := range [][2]timedSum{
		{{4096, 1, 1}, {8192, 1, 1}},
		{{4096, 1, 1}, {4096, 0, 0}},
	} {
		if err := found.add(l, pair[0], pair[1]); err == nil {
			t.Errorf("%v were compared", pair)
		}
	}
}

// TestTableOfTransfers checks the rows of the table: medians, rates, ratios, and whether the goal
// is met.
func TestTableOfTransfers(t *testing.T) {
	found := transfers{Date: "2030-01-02", Rounds: 2}
	for _, ours := range []float64{5, 10} {
		for _, size := range []int{4096, 25 << 20} {
			if err := found.add(link{9000, "bbr"}, timedSum{size, ours, 4}, timedSum{size, 12, 10}); err != nil {
				t.Fatal(err)
			}
		}
		if err := found.add(link{1500, "bbr"}, timedSum{25 << 20, ours, 4}, timedSum{25 << 20, 9, 9}); err != nil {
			t.Fatal(err)
		}
	}
	var b strings.Builder
	found.render(&b)
	for _, want := range []string{
		"| 9000 | bbr | 4096 | 7.5 ms | 0.00 | 0.00 | 12 ms | 0.00 | 0.00 | 1.6x | - | - |\n",
		"| 9000 | bbr | 26214400 | 7.5 ms | 3.50 | 6.55 | 12 ms | 2.18 | 2.62 | 1.6x | at least 1.5x | yes |\n",
		"| 1500 | bbr | 26214400 | 7.5 ms | 3.50 | 6.55 | 9 ms | 2.91 | 2.91 | 1.2x | at least 1.5x | **no** |\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// TestCable checks that the two ends of a cable reach each other with the requested MTU, and that
// no other namespace reaches them.
func TestCable(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	c, err := newCable(link{9000, "reno"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	addr, f, err := c.listen(1)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dial := func() error {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err
	}
	if err := c.in(0, dial); err != nil {
		t.Errorf("from the other end: %v", err)
	}
	var mtu int
	if err := c.in(0, func() error {
		i, err := net.InterfaceByName(device)
		if err == nil {
			mtu = i.MTU
		}
		return err
	}); err != nil || mtu != 9000 {
		t.Errorf("MTU %d, %v", mtu, err)
	}
}
