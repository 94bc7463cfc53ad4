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
		{"bound, in a container", Step{Nodes: 2, TasksPerNode: 4, CPUsPerTask: 8, GPUsPerNode: 4, CPUBind: "mask_cpu:0xff,0xff00", GPUBind: "closest",
			Options: []string{"--network=no_vni"}, Prefix: []string{"apptainer", "exec", "x y.sif"}, Argv: []string{"/bin/x", "run"}},
			[]string{"srun", "--nodes=2", "--ntasks=8", "--ntasks-per-node=4", "--cpus-per-task=8"},
			[]string{"--gres=gpu:4", "--cpu-bind=mask_cpu:0xff,0xff00", "--gpu-bind=closest", "--network=no_vni", "apptainer", "exec", "x y.sif", "/bin/x", "run"}},
		{"GPUs per task exclude those per node", Step{Nodes: 2, TasksPerNode: 4, CPUsPerTask: 8, GPUsPerNode: 4, GPUsPerTask: 1, GPUBind: "none", Argv: []string{"/bin/x"}},
			[]string{"srun", "--nodes=2", "--ntasks=8", "--ntasks-per-node=4", "--cpus-per-task=8"},
			[]string{"--gpus-per-task=1", "--gpu-bind=none", "/bin/x"}},
		{"on some of the nodes", Step{Nodes: 3, TasksPerNode: 1, CPUsPerTask: 2, NodeList: []string{"n1", "n3", "n4"}, NoKill: true, Overlap: true, Argv: []string{"/bin/x"}},
			[]string{"srun", "--nodes=3", "--ntasks=3", "--ntasks-per-node=1", "--cpus-per-task=2"},
			[]string{"--nodelist=n[1,3-4]", "--no-kill", "--overlap", "/bin/x"}},
		{"equal components", Step{Components: []StepSize{{1, 2, 3, 0, 0}, {1, 2, 3, 0, 0}}, Argv: []string{"/bin/x"}},
			[]string{"srun", "--het-group=0,1", "--nodes=1", "--ntasks=2", "--ntasks-per-node=2", "--cpus-per-task=3"},
			[]string{"/bin/x"}},
		{"components of other sizes", Step{Nodes: 9, Components: []StepSize{{1, 2, 3, 4, 0}, {2, 1, 1, 0, 0}}, Label: true, Argv: []string{"/bin/x"}},
			[]string{"srun", "--het-group=0", "--nodes=1", "--ntasks=2", "--ntasks-per-node=2", "--cpus-per-task=3"},
			slices.Concat([]string{"--gres=gpu:4", "--label", "/bin/x", ":", "--het-group=1", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--cpus-per-task=1"},
				always, []string{"--label", "/bin/x"})},
	}
	for _, tt := range tests {
		want := slices.Concat(tt.before, always, tt.end)
		if got := tt.step.SrunArgv(); !slices.Equal(got, want) {
			t.Errorf("%s:\ngot  %q\nwant %q", tt.name, got, want)
		}
	}
}
