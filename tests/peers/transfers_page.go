package main

import (
	"fmt"
	"slices"
	"strings"
)

// render writes the table of sums over TCP.
func (t *transfers) render(b *strings.Builder) {
	fmt.Fprintf(b, "## Sums over TCP\nfloat32, two ranks, each in a network namespace of its own, with a veth link between them, so that all of it is work of the two cores; beside Gloo, PyTorch's own, in turns, in %s, on %s. GB/s is the buffer by the time, the median of the rounds' medians or the best of all; the ratio is of the medians.\n\n",
		rounds(t.Rounds), t.Date)
	header(b, "MTU", "congestion control", "bytes", "ddpbatch", "GB/s", "best", "Gloo", "GB/s", "best", "ratio", "target", "met")
	for _, r := range t.Rows {
		ours, theirs := middle(r.Ours.Median), middle(r.Theirs.Median)
		cells := []string{fmt.Sprint(r.MTU), r.Congestion, fmt.Sprint(r.Bytes)}
		for _, s := range []sums{r.Ours, r.Theirs} {
			cells = append(cells, milliseconds(middle(s.Median)/1e3), r.rate(middle(s.Median)), r.rate(slices.Min(s.Best)))
		}
		cells = append(cells, times(theirs/ours))
		line(b, append(cells, r.target().cells(theirs/ours, true, times)...)...)
	}
	b.WriteString("\nThe congestion control is the namespaces'. Where that is BBR, Gloo uses it and ddpbatch does not: its timer halves the speed on links as short as these. ddpbatch checks what arrives by CRC-32C, Gloo does not.\n\n")
}

// rate is the bus bandwidth of two ranks, who send as many bytes as the buffer has.
func (r *transfer) rate(milliseconds float64) string {
	return fmt.Sprintf("%.2f", float64(r.Bytes)/milliseconds/1e6)
}

// target is that of the ratio.
func (r *transfer) target() *target {
	if r.Bytes == 25<<20 {
		return atLeast(1.5)
	}
	return nil
}
