package main

import (
	"fmt"
	"slices"
	"strings"
)

// render writes the table of sums on one machine.
func (c *collectives) render(b *strings.Builder) {
	fmt.Fprintf(b, "## Sums on one machine\nfloat32, in place, two processes that the system places on the cores: in ddpbatch's shared memory, by PyTorch's Gloo over the loopback device, and by the blocking MPI_Allreduce of Open MPI and MPICH, called by a program in C (`--bind-to none`); in turns, in %s, on %s. A time is the median of the rounds' medians, then the best of all; a ratio is theirs by ours, of the medians.\n\n",
		rounds(c.Rounds), c.Date)
	header(b, "bytes", "beside", "ddpbatch", "best", "theirs", "best", "ratio", "target", "met")
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
		fmt.Fprintf(b, "Other programs kept %.1f to %.1f cores busy in the second before a round.\n\n", slices.Min(c.Busy), slices.Max(c.Busy))
	} else {
		b.WriteString("These figures are from before ranks of ddpbatch looked for a core of their own, as said below, and before it was recorded how busy the machine was.\n\n")
	}
	b.WriteString(sharedCore)
}

// sharedCore is what one should know who reads or repeats the measurement.
const sharedCore = `Its ranks give way to others while they wait, and Linux leaves two that do so for each other on one core: 4 KiB then take 4 us instead of 0.5, 1 MiB 0.033 ms instead of 0.014, 25 MiB 1.4 ms instead of 0.85. A rank that shares the core of the one that it waits for therefore moves to a core that has idled for 40 ms, if there is one; all sides make sums for a quarter of a second before they are timed. Where none idles both stay: a rank that moves to a busy core makes both wait for a stranger's turns (4 KiB beside one busy program of the same priority: 2 ms on average instead of 4 us). Huge pages made no difference at 25 MiB, and passes over the buffer from either end in turns were slower.

`

// target is that of the ratio to a contender.
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
