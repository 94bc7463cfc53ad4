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
}

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
