package main

import (
	"strings"
	"testing"
)

// TestCollectivesHaveEqualSizes checks that only measurements of the same sizes are compared.
func TestCollectivesHaveEqualSizes(t *testing.T) {
	good := []timedSum{{4096, 1, 1}, {1 << 20, 1, 1}, {25 << 20, 1, 1}, {100 << 20, 1, 1}}
	for name, times := range map[string][]timedSum{
		"fewer sizes":   good[:3],
		"another size":  {good[0], {2 << 20, 1, 1}, good[2], good[3]},
		"without times": {good[0], {1 << 20, 0, 0}, good[2], good[3]},
	} {
		var found collectives
		if err := found.add(gloo, times); err == nil {
			t.Errorf("%s: it was added", name)
		}
	}
	var found collectives
	if err := found.add(gloo, good); err != nil {
		t.Error(err)
	}
}

// TestTableOfCollectives checks the rows of the table: medians, ratios, and whether the goals are
// met.
func TestTableOfCollectives(t *testing.T) {
	found := collectives{Date: "2030-01-02", Rounds: 2, Busy: []float64{0.75, 0.04}}
	of := func(small, large float64) []timedSum {
		return []timedSum{{4096, small, small}, {1 << 20, 1, 1}, {25 << 20, large, large / 2}, {100 << 20, large, large}}
	}
	for name, times := range map[string][]timedSum{ddpbatch: of(2e-3, 2), gloo: of(1, 24), openMPI: of(1e-3, 6), mpich: of(3e-3, 10)} {
		for range 2 {
			if err := found.add(name, times); err != nil {
				t.Fatal(err)
			}
		}
	}
	var b strings.Builder
	found.render(&b)
	for _, want := range []string{
		"used 0.0 to 0.8 cores.\n\n",
		"| 4096 | Gloo | 0.002 ms | 0.002 ms | 1 ms | 1 ms | 500x | - | - |\n",
		"| 4096 | Open MPI | 0.002 ms | 0.002 ms | 0.001 ms | 0.001 ms | 0.5x | at least 1x | **no** |\n",
		"| 4096 | MPICH | 0.002 ms | 0.002 ms | 0.003 ms | 0.003 ms | 1.5x | - | - |\n",
		"| 26214400 | Gloo | 2 ms | 1 ms | 24 ms | 12 ms | 12x | at least 10x | yes |\n",
		"| 26214400 | Open MPI | 2 ms | 1 ms | 6 ms | 3 ms | 3x | at least 4x | **no** |\n",
		"| 104857600 | MPICH | 2 ms | 2 ms | 10 ms | 10 ms | 5x | at least 4x | yes |\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
