package slurm

import (
	"slices"
	"testing"
)

func TestSrunArgv(t *testing.T) {
	always := []string{"--kill-on-bad-exit=0", "--wait=0", "--export=ALL", "--input=none", "--mpi=none"}
	tests := []struct {
		name        string
		step        Step
		before, end []string
	}{
		{"CPU", Step{Nodes: 3, TasksPerNode: 2, CPUsPerTask: 4, Argv: []string{"/bin/x", "run", "--run-dir", "/a b"}},
			[]string{"srun", "--nodes=3", "--ntasks=6", "--ntasks-per-node=2", "--cpus-per-task=4"},
			[]string{"/bin/x", "run", "--run-dir", "/a b"}},
		{"GPU, named and labelled", Step{Nodes: 1, TasksPerNode: 8, CPUsPerTask: 1, GPUsPerNode: 8, Name: "try-2", Label: true, Argv: []string{"/bin/x"}},
			[]string{"srun", "--nodes=1", "--ntasks=8", "--ntasks-per-node=8", "--cpus-per-task=1"},
			[]string{"--gres=gpu:8", "--job-name=try-2", "--label", "/bin/x"}},
	}
	for _, tt := range tests {
		want := slices.Concat(tt.before, always, tt.end)
		if got := tt.step.SrunArgv(); !slices.Equal(got, want) {
			t.Errorf("%s:\ngot  %q\nwant %q", tt.name, got, want)
		}
	}
}
