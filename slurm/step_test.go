package slurm

import (
	"slices"
	"testing"
)

// TestSrunArgv checks the arguments of srun for each kind of step.
func TestSrunArgv(t *testing.T) {
	always := []string{"--kill-on-bad-exit=0", "--wait=0", "--export=ALL", "--input=none", "--mpi=none"}
	tests := []struct {
		name        string
		step        Step
		before, end []string
	}{
		{name: "CPU", step: Step{StepSize: StepSize{Nodes: 3, TasksPerNode: 2, CPUsPerTask: 4}, Argv: []string{"/bin/x", "run", "--run-dir", "/a b"}},
			before: []string{"srun", "--nodes=3", "--ntasks=6", "--ntasks-per-node=2", "--cpus-per-task=4"},
			end:    []string{"/bin/x", "run", "--run-dir", "/a b"}},
		{name: "GPUs, name, and label", step: Step{StepSize: StepSize{Nodes: 1, TasksPerNode: 8, CPUsPerTask: 1, GPUsPerNode: 8}, Name: "try-2", Label: true, Argv: []string{"/bin/x"}},
			before: []string{"srun", "--nodes=1", "--ntasks=8", "--ntasks-per-node=8", "--cpus-per-task=1"},
			end:    []string{"--gres=gpu:8", "--job-name=try-2", "--label", "/bin/x"}},
		{name: "binding and container", step: Step{StepSize: StepSize{Nodes: 2, TasksPerNode: 4, CPUsPerTask: 8, GPUsPerNode: 4}, CPUBind: "mask_cpu:0xff,0xff00", GPUBind: "closest",
			Options: []string{"--network=no_vni"}, Prefix: []string{"apptainer", "exec", "x y.sif"}, Argv: []string{"/bin/x", "run"}},
			before: []string{"srun", "--nodes=2", "--ntasks=8", "--ntasks-per-node=4", "--cpus-per-task=8"},
			end:    []string{"--gres=gpu:4", "--cpu-bind=mask_cpu:0xff,0xff00", "--gpu-bind=closest", "--network=no_vni", "apptainer", "exec", "x y.sif", "/bin/x", "run"}},
		{name: "GPUs per task take precedence", step: Step{StepSize: StepSize{Nodes: 2, TasksPerNode: 4, CPUsPerTask: 8, GPUsPerNode: 4, GPUsPerTask: 1}, GPUBind: "none", Argv: []string{"/bin/x"}},
			before: []string{"srun", "--nodes=2", "--ntasks=8", "--ntasks-per-node=4", "--cpus-per-task=8"},
			end:    []string{"--gpus-per-task=1", "--gpu-bind=none", "/bin/x"}},
		{name: "other resources", step: Step{StepSize: StepSize{Nodes: 1, TasksPerNode: 2, CPUsPerTask: 1, GPUsPerNode: 2, Gres: "nvme:1"}, Argv: []string{"/bin/x"}},
			before: []string{"srun", "--nodes=1", "--ntasks=2", "--ntasks-per-node=2", "--cpus-per-task=1"},
			end:    []string{"--gres=gpu:2,nvme:1", "/bin/x"}},
		{name: "GPUs per task and other resources", step: Step{StepSize: StepSize{Nodes: 1, TasksPerNode: 2, CPUsPerTask: 1, GPUsPerTask: 1, Gres: "nvme:1"}, Argv: []string{"/bin/x"}},
			before: []string{"srun", "--nodes=1", "--ntasks=2", "--ntasks-per-node=2", "--cpus-per-task=1"},
			end:    []string{"--gpus-per-task=1", "--gres=nvme:1", "/bin/x"}},
		{name: "some of the nodes", step: Step{StepSize: StepSize{Nodes: 3, TasksPerNode: 1, CPUsPerTask: 2}, NodeList: []string{"n1", "n3", "n4"}, NoKill: true, Overlap: true, Argv: []string{"/bin/x"}},
			before: []string{"srun", "--nodes=3", "--ntasks=3", "--ntasks-per-node=1", "--cpus-per-task=2"},
			end:    []string{"--nodelist=n[1,3-4]", "--no-kill", "--overlap", "/bin/x"}},
		{name: "all CPUs", step: Step{StepSize: StepSize{Nodes: 2, TasksPerNode: 1, GPUsPerNode: 4}, Argv: []string{"/bin/x"}},
			before: []string{"srun", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1"},
			end:    []string{"--gres=gpu:4", "/bin/x"}},
		{name: "equal components", step: Step{Components: []StepSize{{Nodes: 1, TasksPerNode: 2, CPUsPerTask: 3}, {Nodes: 1, TasksPerNode: 2, CPUsPerTask: 3}}, Argv: []string{"/bin/x"}},
			before: []string{"srun", "--het-group=0,1", "--nodes=1", "--ntasks=2", "--ntasks-per-node=2", "--cpus-per-task=3"},
			end:    []string{"/bin/x"}},
		{name: "tasks by node", step: Step{StepSize: StepSize{Nodes: 2, TasksPerNode: 2, CPUsPerTask: 2, GPUsPerNode: 2, TaskNodes: []string{"n1", "n1", "n2"}}, NodeList: []string{"n1", "n2"}, Argv: []string{"/bin/x"}},
			before: []string{"srun", "--ntasks=3", "--distribution=arbitrary", "--nodelist=n1,n1,n2", "--cpus-per-task=2"},
			end:    []string{"--gres=gpu:2", "/bin/x"}},
		{name: "components with tasks by node", step: Step{Components: []StepSize{{Nodes: 1, TasksPerNode: 2, CPUsPerTask: 3}, {CPUsPerTask: 1, TaskNodes: []string{"n2", "n3", "n3"}}}, Argv: []string{"/bin/x"}},
			before: []string{"srun", "--het-group=0", "--nodes=1", "--ntasks=2", "--ntasks-per-node=2", "--cpus-per-task=3"},
			end: slices.Concat([]string{"/bin/x", ":", "--het-group=1", "--ntasks=3", "--distribution=arbitrary", "--nodelist=n2,n3,n3", "--cpus-per-task=1"},
				always, []string{"/bin/x"})},
		{name: "one of two components", step: Step{Components: []StepSize{{CPUsPerTask: 1}, {CPUsPerTask: 1, TaskNodes: []string{"n2"}}}, Argv: []string{"/bin/x"}},
			before: []string{"srun", "--het-group=1", "--ntasks=1", "--distribution=arbitrary", "--nodelist=n2", "--cpus-per-task=1"},
			end:    []string{"/bin/x"}},
		{name: "different components", step: Step{StepSize: StepSize{Nodes: 9}, Components: []StepSize{{Nodes: 1, TasksPerNode: 2, CPUsPerTask: 3, GPUsPerNode: 4}, {Nodes: 2, TasksPerNode: 1, CPUsPerTask: 1}}, Label: true, Argv: []string{"/bin/x"}},
			before: []string{"srun", "--het-group=0", "--nodes=1", "--ntasks=2", "--ntasks-per-node=2", "--cpus-per-task=3"},
			end: slices.Concat([]string{"--gres=gpu:4", "--label", "/bin/x", ":", "--het-group=1", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--cpus-per-task=1"},
				always, []string{"--label", "/bin/x"})},
	}
	for _, tt := range tests {
		want := slices.Concat(tt.before, always, tt.end)
		if got := tt.step.SrunArgv(); !slices.Equal(got, want) {
			t.Errorf("%s:\ngot  %q\nwant %q", tt.name, got, want)
		}
	}
}

// TestEnvironOfUnevenStep checks that srun does not get variables that contradict the tasks of nodes.
func TestEnvironOfUnevenStep(t *testing.T) {
	environ := []string{"SLURM_NTASKS_PER_NODE=2", "SLURM_HOSTFILE=x", "SLURM_NTASKS=4"}
	for _, tt := range []struct {
		name string
		step Step
		want []string
	}{
		{name: "equal", step: Step{StepSize: StepSize{Nodes: 2, TasksPerNode: 2}}, want: environ},
		{name: "different", step: Step{StepSize: StepSize{TaskNodes: []string{"a", "a", "b"}}}, want: environ[2:]},
		{name: "different in a component", step: Step{Components: []StepSize{{TaskNodes: []string{"a", "a", "b"}}}}, want: environ[2:]},
	} {
		if got := tt.step.Environ(environ); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestEnvironWithAllCPUs checks that srun does not get the number of cores of the job if the step uses
// all of them.
func TestEnvironWithAllCPUs(t *testing.T) {
	environ := []string{"SLURM_CPUS_ON_NODE=8", "SLURM_CPUS_PER_TASK=4", "SLURM_CPUS_PER_TASK_HET_GROUP_0=4", "SRUN_CPUS_PER_TASK=4", "SLURM_TRES_PER_TASK=cpu=4", "SLURM_EXACT=1", "SLURM_EXCLUSIVE=1"}
	for _, tt := range []struct {
		name string
		step Step
		want []string
	}{
		{name: "some", step: Step{StepSize: StepSize{Nodes: 2, TasksPerNode: 2, CPUsPerTask: 2}}, want: environ},
		{name: "some in each component", step: Step{Components: []StepSize{{Nodes: 2, TasksPerNode: 2, CPUsPerTask: 2}}}, want: environ},
		{name: "all", step: Step{StepSize: StepSize{Nodes: 2, TasksPerNode: 2}}, want: environ[:1]},
		{name: "all in a component", step: Step{Components: []StepSize{{CPUsPerTask: 1}, {Nodes: 1}}}, want: environ[:1]},
	} {
		if got := tt.step.Environ(environ); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestMergeCPUBind checks the CPU masks of several tasks for a single task that replaces them.
func TestMergeCPUBind(t *testing.T) {
	const lumi = "mask_cpu:fe000000000000,fe00000000000000,fe0000,fe000000,fe,fe00,fe00000000,fe0000000000"
	for _, tt := range []struct {
		bind  string
		tasks int
		want  string
	}{
		{bind: "", tasks: 4},
		{bind: "none", tasks: 4, want: "none"},
		{bind: "cores", tasks: 4, want: "cores"},
		{bind: "verbose,cores", tasks: 4, want: "verbose,cores"},
		{bind: lumi, tasks: 8, want: "mask_cpu:0xfefefefefefefefe"},
		{bind: lumi, tasks: 2, want: "mask_cpu:0xfefe000000000000"},
		{bind: "quiet,mask_cpu:0x1,0x2", tasks: 2, want: "quiet,mask_cpu:0x3"},
		{bind: "mask_cpu:0x1", tasks: 4, want: "mask_cpu:0x1"},
		{bind: "mask_cpu:0x1*2,0x2*2", tasks: 4, want: "mask_cpu:0x3"},
		{bind: "mask_cpu:0x1*2,0x2*2", tasks: 2, want: "mask_cpu:0x1"},
		{bind: "mask_cpu:0x" + "f0000000000000000000000000000000" + ",0xf", tasks: 2, want: "mask_cpu:0xf000000000000000000000000000000f"},
		{bind: "map_cpu:0,8,0x10", tasks: 3, want: "mask_cpu:0x10101"},
		{bind: "map_ldom:0,3", tasks: 2, want: "mask_ldom:0x9"},
		{bind: "mask_ldom:0x1,0x8", tasks: 2, want: "mask_ldom:0x9"},
		{bind: "rank", tasks: 4, want: "none"},
		{bind: "v,rank_ldom", tasks: 4, want: "v,none"},
		{bind: "mask_cpu:zz", tasks: 4, want: "none"},
		{bind: "mask_cpu", tasks: 4, want: "none"},
		{bind: "map_cpu:0*x", tasks: 4, want: "none"},
		{bind: "map_cpu:0*0", tasks: 4, want: "none"},
		{bind: "map_cpu:0*1,3", tasks: 2, want: "mask_cpu:0x9"},
		{bind: "map_cpu:x", tasks: 4, want: "none"},
		{bind: "mask_cpu:0x0", tasks: 4, want: "none"},
		{bind: "mask_cpu:0x1,0x2,zz", tasks: 2, want: "mask_cpu:0x3"},
		{bind: "mask_cpu:0X1,F0", tasks: 2, want: "mask_cpu:0xf1"},
		{bind: "q,cores", tasks: 4, want: "q,cores"},
		{bind: "cores,x", tasks: 4, want: "cores,x"},
	} {
		if got := MergeCPUBind(tt.bind, tt.tasks); got != tt.want {
			t.Errorf("MergeCPUBind(%q, %d): got %q, want %q", tt.bind, tt.tasks, got, tt.want)
		}
	}
}

// TestMergeGPUBind checks which GPU bindings are valid for a single task that replaces several.
func TestMergeGPUBind(t *testing.T) {
	for bind, want := range map[string]string{"": "", "closest": "closest", "none": "none", "map_gpu:0,1": "none", "verbose,single:1": "verbose,none",
		"quiet,closest": "quiet,closest", "per_task:1": "none", "mask_gpu:0x1,0x2": "none"} {
		if got := MergeGPUBind(bind); got != want {
			t.Errorf("MergeGPUBind(%q): got %q, want %q", bind, got, want)
		}
	}
}
