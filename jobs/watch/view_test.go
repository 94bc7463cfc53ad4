package watch

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/printable"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/watch/screen"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// runs lists the status values that the tests draw.
func runs(now time.Time) []Status {
	step, slowest := 1200, 5
	train := &metrics.Record{Kind: "train", Step: step, Steps: 2800, Epoch: 2, Epochs: 5, Loss: metrics.NewNumber(0.43125), SamplesPerSecond: metrics.NewNumber(12345.6), LeftSeconds: metrics.NewNumber(70),
		StepMillis: metrics.NewNumber(20), CommMillis: metrics.NewNumber(8), CommHidden: metrics.NewNumber(0.75), SlowestRank: &slowest, SlowestRatio: metrics.NewNumber(1.61), Straggler: true, Time: now}
	live := &rundir.Live{Time: now, JobID: "18", Phase: rundir.PhaseRunning, Hosts: "n[1-4]", PerNode: 2, Ranks: 8, Joined: 8, Nodes: []rundir.NodeGroup{
		{State: "lost", Hosts: "n4", Ranks: []int{6, 7}, Count: 2, Least: 1190, Most: 1190}, {State: "training", Hosts: "n[1-3]", Ranks: []int{0, 1, 2, 3, 4, 5}, Count: 6, Least: 1200, Most: 1201}}}
	joining := &rundir.Live{Time: now, JobID: "18", Phase: rundir.PhaseJoining, Hosts: "n[1-2]", PerNode: 1, Ranks: 2, Joined: 1, Nodes: []rundir.NodeGroup{
		{State: "joining", Hosts: "n2", Ranks: []int{1}, Count: 1}, {State: "connecting", Hosts: "n1", Ranks: []int{0}, Count: 1}}}
	all := []Status{
		{Name: "train\x1b[2J", Job: "18", State: slurm.StateRunning, Step: &step, Steps: 2800, Train: train, Live: live, Saved: &Checkpoint{Step: 900},
			Eval: &metrics.Record{Loss: metrics.NewNumber(0.5), Accuracy: metrics.NewNumber(0.8125)}},
		{Name: "join", Job: "18", State: slurm.StateRunning, Live: joining},
		{Name: "wait", Job: "18", State: slurm.StatePending, Reason: "ReqNodeNotAvail, UnavailableNodes:n[3-4]"},
		{Name: "alone", Step: &step, Steps: 1200, Train: &metrics.Record{Kind: "train", Loss: metrics.NewNumber(1), TokensPerSecond: metrics.NewNumber(987)},
			Live: &rundir.Live{Time: now, Phase: rundir.PhaseRunning, Hosts: "vm", PerNode: 1, Ranks: 1, Joined: 1, Nodes: []rundir.NodeGroup{{State: "saving", Hosts: "vm", Ranks: []int{0}, Count: 1}}}},
	}
	for i := range all {
		all[i].SetPhase(now)
	}
	return all
}

// TestView checks the lines in terminals of several widths, and that they fit.
func TestView(t *testing.T) {
	now := time.Now()
	var out strings.Builder
	for _, v := range []View{{Unicode: true}, {}} {
		for _, s := range runs(now) {
			for _, width := range []int{160, 99, 59, 29, 8} {
				fmt.Fprintf(&out, "-- %s, %d columns, unicode %v\n", printable.Line(s.Name), width, v.Unicode)
				plain := v.Lines(&s, width, now)
				for _, line := range plain {
					out.WriteString(line + "\n")
				}
				v.Color = true
				for i, line := range v.Lines(&s, width, now) {
					if screen.StripColors(line) != plain[i] {
						t.Errorf("in colour: %q, want %q", screen.StripColors(line), plain[i])
					}
					if n := screen.Width(line); n > width {
						t.Errorf("%d columns of %d: %q", n, width, line)
					}
				}
				v.Color = false
			}
		}
	}
	golden(t, "testdata/view.golden", out.String())
}

// TestViewWithoutNodes checks that a run whose ranks have no state yet has no empty line.
func TestViewWithoutNodes(t *testing.T) {
	s := Status{Name: "a", Phase: Joining, Live: &rundir.Live{}}
	if lines := (View{}).Lines(&s, 80, time.Now()); len(lines) != 1 {
		t.Errorf("got %q, want one line", lines)
	}
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || got != string(want) {
		t.Errorf("%s: %v; got\n%s", path, err, got)
	}
}
