package main

import (
	"fmt"
	"slices"
	"strings"
)

// render writes the table of all-reduces over TCP.
func (t *transfers) render(b *strings.Builder) {
	fmt.Fprintf(b, "## All-reduce over TCP\nAll-reduce of float32 values by two ranks in separate network namespaces with a veth link, compared with PyTorch's Gloo. The two cores do all of the work, including the network's. The programs take turns, in %s, on %s. GB/s is the size of the buffer divided by the time: the median of the rounds' medians, and the best. The ratio compares medians.\n\n",
		rounds(t.Rounds), t.Date)
	header(b, "MTU", "Congestion control", "Bytes", "ddpbatch", "GB/s", "Best GB/s", "Gloo", "GB/s", "Best GB/s", "Ratio", "Target", "Met")
	for _, r := range t.Rows {
		ours, theirs := middle(r.Ours.Median), middle(r.Theirs.Median)
		cells := []string{fmt.Sprint(r.MTU), r.Congestion, fmt.Sprint(r.Bytes)}
		for _, s := range []sums{r.Ours, r.Theirs} {
			cells = append(cells, milliseconds(middle(s.Median)/1e3), r.rate(middle(s.Median)), r.rate(slices.Min(s.Best)))
		}
		cells = append(cells, times(theirs/ours))
		line(b, append(cells, r.target().cells(theirs/ours, true, times)...)...)
	}
	b.WriteString("\nThe congestion control is the default of the network namespaces. If it is BBR, only Gloo uses it. ddpbatch avoids BBR, because its timer halves the speed on short links. Only ddpbatch verifies data, with CRC-32C.\n\n")
}

// rate returns the bus bandwidth of two ranks, which each send as many bytes as the buffer has.
func (r *transfer) rate(milliseconds float64) string {
	return fmt.Sprintf("%.2f", float64(r.Bytes)/milliseconds/1e6)
}

// target returns the goal for the ratio.
func (r *transfer) target() *target {
	if r.Bytes == 25<<20 {
		return atLeast(1.5)
	}
	return nil
}
