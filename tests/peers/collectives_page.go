package main

import (
	"fmt"
	"slices"
	"strings"
)

// render writes the table of all-reduces on one machine.
func (c *collectives) render(b *strings.Builder) {
	fmt.Fprintf(b, "<a id=\"sums-on-one-machine\"></a>\n\n## All-reduce on one machine\nIn-place all-reduce of float32 values by two processes that are not bound to cores: ddpbatch's shared memory, PyTorch's Gloo over the loopback device, and the blocking MPI_Allreduce of Open MPI and MPICH from a C program (`--bind-to none`). The programs take turns, in %s, on %s. The table has the median of the rounds' medians and the best time. The ratio is the other program's median divided by ddpbatch's.\n\n",
		rounds(c.Rounds), c.Date)
	header(b, "Bytes", "Compared with", "ddpbatch, median", "ddpbatch, best", "Other, median", "Other, best", "Ratio", "Target", "Met")
	for _, r := range c.Rows {
		for _, name := range []string{gloo, openMPI, mpich} {
			ours, theirs := r.Sides[ddpbatch], r.Sides[name]
			ratio := middle(theirs.Median) / middle(ours.Median)
			cells := []string{fmt.Sprint(r.Bytes), name}
			for _, s := range []*sums{ours, theirs} {
				cells = append(cells, milliseconds(middle(s.Median)/1e3), milliseconds(slices.Min(s.Best)/1e3))
			}
			line(b, append(append(cells, times(ratio)), r.target(name).cells(ratio, true, times)...)...)
		}
	}
	b.WriteString("\n")
	if len(c.Busy) > 0 {
		fmt.Fprintf(b, "In the second before a round, unrelated programs used %.1f to %.1f cores.\n\n", slices.Min(c.Busy), slices.Max(c.Busy))
	} else {
		b.WriteString("These values are older than the search for an idle core (described below) and than the record of the machine's load.\n\n")
	}
	b.WriteString(sharedCore)
}

// sharedCore explains results that depend on the placement of ranks.
const sharedCore = `Waiting ranks yield the CPU, and Linux then leaves two ranks on the same core. This makes an all-reduce slower:

| Buffer | Two cores | One shared core |
|---|---|---|
| 4 KiB | 0.5 µs | 4 µs |
| 1 MiB | 0.014 ms | 0.033 ms |
| 25 MiB | 0.85 ms | 1.4 ms |

A rank that shares the core of the rank that it waits for therefore moves to a core that has been idle for 40 ms. All programs run all-reduces for 0.25 s before they are timed. If no core is idle, both ranks stay, because a rank on a busy core would wait for the time slices of unrelated programs: 4 KiB then take 2 ms on average instead of 4 µs. Huge pages did not change the result at 25 MiB. Traversing the buffer in alternating directions was slower.

`

// target returns the goal for the ratio to a contender.
func (r *collectiveRow) target(name string) *target {
	large := r.Bytes >= 25<<20
	switch {
	case name == gloo && (r.Bytes == 1<<20 || r.Bytes == 25<<20):
		return atLeast(10)
	case name != gloo && large:
		return atLeast(4)
	case name == openMPI && r.Bytes == 4096:
		return atLeast(1)
	}
	return nil
}
