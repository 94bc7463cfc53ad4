package runs

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
)

// TestReadCostCountsAllFiles checks that the cost of a run includes the job file and the names in the
// directory of checkpoints.
func TestReadCostCountsAllFiles(t *testing.T) {
	dir := rundir.Dir{Path: t.TempDir()}
	before := readCost(dir)
	write(t, dir.Spec(), strings.Repeat("#", 1000))
	spec := readCost(dir)
	if spec < before+16*1000 {
		t.Errorf("the cost is %d with a job file and %d without", spec, before)
	}
	for i := range 100 {
		write(t, filepath.Join(dir.Checkpoints(), fmt.Sprintf("step-%08d", i)), "")
	}
	if cost := readCost(dir); cost < spec+100*nameCost {
		t.Errorf("the cost is %d with 100 checkpoints and %d without", cost, spec)
	}
}

// TestExhaustedBudget checks that no further costs are computed after many runs that are too large.
func TestExhaustedBudget(t *testing.T) {
	b := newReadBudget(1600)
	calls := 0
	cost := func(n int64) func() int64 { return func() int64 { calls++; return n } }
	if !b.take(7, cost(100)) || b.take(7, cost(1501)) || !b.take(7, cost(100)) {
		t.Errorf("got %+v", b)
	}
	for range 100 {
		b.take(7, cost(1501))
	}
	if calls > 20 || b.skipped[7] != 101 {
		t.Errorf("computed %d costs, skipped %d runs", calls, b.skipped[7])
	}
	if !b.take(8, cost(1)) {
		t.Error("the budget of a different user is used")
	}
}
