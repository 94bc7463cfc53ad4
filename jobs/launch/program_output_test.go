package launch

import (
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/launch/output"
)

// TestOutputAttemptWithoutALauncher checks that each start has an attempt of its own, and that old
// attempts are removed.
func TestOutputAttemptWithoutALauncher(t *testing.T) {
	for _, tt := range []struct {
		name     string
		launcher jobs.Launcher
		rank     int
		base     string
	}{
		{"rank", jobs.LauncherRank, 1, output.RankBase(1)},
		{"node", jobs.LauncherTorchrun, 1, output.NodeBase(1)},
		{"worker", jobs.LauncherTorchrun, 1, output.RankBase(5)},
		{"first node", jobs.LauncherTorchrun, 0, output.NodeBase(0)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := newRun(t)
			job := &jobs.Job{Command: &jobs.Command{Launcher: tt.launcher}}
			job.Slurm.TasksPerNode = 4
			r := &Rank{Info: RankInfo{Rank: tt.rank, WorldSize: 2, Nodes: 2}, dir: dir, job: job}
			for want := 1; want <= maxOutputAttempts+2; want++ {
				got := r.outputAttempt(&ProgramOptions{Say: func(line string) { t.Error(line) }})
				if got != want {
					t.Fatalf("got attempt %d, want %d", got, want)
				}
				out, err := dir.CreateRankOutput(got)
				if err != nil {
					t.Fatal(err)
				}
				for _, name := range []string{tt.base, output.RankBase(9)} { // 9 belongs to another rank and node
					f, err := out.Create(output.Parts(name)[0])
					if err != nil {
						t.Fatal(err)
					}
					f.Close()
				}
				out.Close()
			}
			kept, err := dir.OutputAttempts()
			if err != nil || tt.rank == 0 && len(kept) != maxOutputAttempts || tt.rank != 0 && len(kept) != maxOutputAttempts+2 {
				t.Errorf("got the attempts %v, %v", kept, err)
			}
		})
	}
}
