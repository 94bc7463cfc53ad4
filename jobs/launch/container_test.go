package launch

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/internal/environ"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/templates/sites"
)

// TestStep checks the command line of srun for bindings, GPUs, containers, and sites.
func TestStep(t *testing.T) {
	const our = "/opt/bin/ddpbatch run --run-dir /runs/x"
	tests := []struct {
		name   string
		change func(*Options)
		want   []string // words of srun's command line
		not    []string
	}{
		{"plain", func(*Options) {}, []string{"--gres=gpu:4", "--cpus-per-task=8", our}, []string{"--gpu-bind", "--cpu-bind", "--gpus-per-task", "--no-kill", "--nodelist"}},
		{"binding", func(o *Options) { o.Job.Slurm.GPUBind, o.Job.Slurm.CPUBind = "closest", "cores" },
			[]string{"--gpu-bind=closest", "--cpu-bind=cores"}, nil},
		{"no GPUs", func(o *Options) { o.Job.Slurm.GPUsPerNode, o.Job.Slurm.GPUBind = 0, "closest" }, nil, []string{"--gres", "--gpu-bind"}},
		{"per task", func(o *Options) { o.Site.Step.GPUs = sites.StepGPUsPerTask }, []string{"--gpus-per-task=1", "--ntasks=8"}, []string{"--gres"}},
		{"shared GPUs", func(o *Options) {
			o.Site.Step.GPUs, o.Job.Slurm.GPUBind = sites.StepGPUsPerTask, "single:1"
			o.Job.Slurm.ShareGPUs, o.Job.Slurm.GPUsPerNode = true, 2
		}, []string{"--gres=gpu:2", "--gpu-bind=none", "--ntasks=8"}, []string{"--gpus-per-task"}},
		{"GPUs come with the node", func(o *Options) { o.Site.Request.GPUs = "none" }, nil, []string{"--gres", "--gpus-per-task"}},
		{"options of the site", func(o *Options) { o.Site.Step.Options = []sites.Option{"--network=x"} }, []string{"--network=x"}, nil},
		{"heterogeneous", func(o *Options) {
			o.Allocation.Components = []slurm.Component{{JobID: "1", Nodes: []string{"a"}}, {JobID: "2", Nodes: []string{"b"}}}
		}, []string{"--het-group=0,1"}, nil},
		{"with a node to spare", func(o *Options) {
			o.Allocation.Nodes, o.Job.Restart.SpareNodes = []string{"a", "b", "c"}, 1
		}, []string{"--nodes=2", "--nodelist=a,b", "--no-kill"}, []string{"--overlap"}},
		{"apptainer", func(o *Options) {
			o.Job.Setup.Container = jobs.Container{Image: "/i.sif", Runtime: "apptainer", Mounts: []jobs.Text{"/data:/d:ro"}}
			o.Site.Container = sites.Container{Runtime: "apptainer", Options: []sites.Option{"--nv"}}
		}, []string{"apptainer exec --nv --bind /code,/opt/bin,/runs/x,/data:/d:ro /i.sif " + our}, nil},
		{"another runtime than the site's", func(o *Options) {
			o.Job.Setup.Container = jobs.Container{Image: "/i.sif", Runtime: "singularity"}
			o.Site.Container = sites.Container{Runtime: "apptainer", Options: []sites.Option{"--nv"}}
		}, []string{"singularity exec --bind"}, []string{"--nv"}},
		{"options of the job", func(o *Options) {
			o.Job.Setup.Container = jobs.Container{Image: "/i.sif", Runtime: "singularity", Options: []jobs.Text{"--rocm"}}
			o.Site.Container = sites.Container{Runtime: "singularity", Options: []sites.Option{"--nv"}}
		}, []string{"singularity exec --rocm --bind"}, []string{"--nv"}},
		{"pyxis", func(o *Options) {
			o.Job.Setup.Container = jobs.Container{Image: "nvcr.io#nvidia/pytorch:24.10-py3", Runtime: "pyxis", Mounts: []jobs.Text{"/data"}}
		}, []string{"--container-image=nvcr.io#nvidia/pytorch:24.10-py3", "--container-mounts=/code:/code,/opt/bin:/opt/bin,/runs/x:/runs/x,/data:/data", our}, nil},
		{"shifter", func(o *Options) {
			o.Job.Setup.Container = jobs.Container{Image: "docker:a/b:1", Runtime: "shifter", Mounts: []jobs.Text{"/data"}}
		}, []string{"shifter --image=docker:a/b:1 --volume=/data:/data -- " + our}, nil},
		{"charliecloud", func(o *Options) {
			o.Job.Setup.Container = jobs.Container{Image: "/i", Runtime: "charliecloud", Options: []jobs.Text{"--write"}, Mounts: []jobs.Text{"/data:/d"}}
		}, []string{"ch-run --write --bind=/code --bind=/opt/bin --bind=/runs/x --bind=/data:/d /i -- " + our}, nil},
		{"edf", func(o *Options) { o.Job.Setup.Container = jobs.Container{Image: "ngc", Runtime: "edf"} }, []string{"--environment=ngc", our}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			job := &jobs.Job{Name: "x", Command: &jobs.Command{Argv: []jobs.Text{"a"}, Workdir: "/code"},
				Slurm: jobs.Slurm{Nodes: 2, TasksPerNode: 4, GPUsPerNode: 4, CPUsPerTask: 8}}
			o := Options{Job: job, Site: &sites.Profile{Request: sites.Request{GPUs: "gres"}, Step: sites.Step{GPUs: sites.StepGPUsAll}},
				Dir: rundir.Dir{Path: "/runs/x"}, Binary: "/opt/bin/ddpbatch", Allocation: &slurm.Allocation{JobID: "1", Nodes: []string{"a", "b"}}}
			tt.change(&o)
			line := strings.Join(buildStep(o, o.Allocation.Nodes[:o.Job.Slurm.Nodes], slices.Repeat([]int{4}, o.Job.Slurm.Nodes)).SrunArgv(), " ") + " "
			for _, want := range tt.want {
				if !strings.Contains(line, " "+want+" ") {
					t.Errorf("%s is not in %s", want, line)
				}
			}
			for _, not := range tt.not {
				if strings.Contains(line, " "+not) {
					t.Errorf("%s is in %s", not, line)
				}
			}
		})
	}
}

// TestLocalArgv checks that a program that runs once is started in the job's container, as a step is, and
// that a launch without Slurm starts no container.
func TestLocalArgv(t *testing.T) {
	o := Options{Job: &jobs.Job{Command: &jobs.Command{Run: jobs.RunOnce}}, Site: &sites.Profile{}, Dir: rundir.Dir{Path: "/runs/x"}, Binary: "/opt/bin/ddpbatch",
		Allocation: &slurm.Allocation{JobID: "1", Nodes: []string{"a", "b"}}}
	const rank = "/opt/bin/ddpbatch run --run-dir /runs/x"
	check := func(want string) {
		t.Helper()
		if got := strings.Join(localArgv(o), " "); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	check(rank)
	o.Job.Setup.Container = jobs.Container{Image: "/i.sif", Runtime: jobs.ContainerApptainer, Options: []jobs.Text{"--nv"}}
	check(strings.Join(environ.StartArgv(o.Binary, []string{"apptainer"}), " ") + " exec --nv --bind /opt/bin,/runs/x /i.sif " + rank)
	o.Job.Setup.Container = jobs.Container{Image: "/i", Runtime: jobs.ContainerCharliecloud, Mounts: []jobs.Text{"/data"}}
	check(strings.Join(environ.StartArgv(o.Binary, []string{"ch-run"}), " ") + " --bind=/opt/bin --bind=/runs/x --bind=/data /i -- " + rank)
	o.Allocation = nil
	check(rank)
}

// TestDecideDevices checks that ranks that see one GPU each get the GPUs of all ranks of their
// node, in order of local ranks. Other ranks stay unchanged.
func TestDecideDevices(t *testing.T) {
	tests := []struct {
		name string
		seen [][3]string // node rank, local rank, and CUDA_VISIBLE_DEVICES of each rank
		want []string
	}{
		{"each its own, in another order than the ranks", [][3]string{{"0", "1", "3"}, {"0", "0", "2"}, {"1", "0", "0"}, {"1", "1", "1"}}, []string{"2,3", "2,3", "0,1", "0,1"}},
		{"UUIDs", [][3]string{{"0", "0", "GPU-aa"}, {"0", "1", "GPU-bb"}}, []string{"", ""}},
		{"all see all", [][3]string{{"0", "0", "0,1"}, {"0", "1", "0,1"}}, []string{"", ""}},
		{"hidden by cgroups", [][3]string{{"0", "0", "0"}, {"0", "1", "0"}}, []string{"", ""}},
		{"not set", [][3]string{{"0", "0", ""}, {"0", "1", ""}}, []string{"", ""}},
		{"one rank per node", [][3]string{{"0", "0", "2"}, {"1", "0", "1"}}, []string{"", ""}},
	}
	for _, tt := range tests {
		var payloads [][]byte
		for _, s := range tt.seen {
			r := deviceReport{Node: int(s[0][0] - '0'), LocalRank: int(s[1][0] - '0'), Visible: []string{s[2], ""}}
			text, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			payloads = append(payloads, text)
		}
		replies, err := decideDevices(payloads)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		var got []string
		for _, r := range replies {
			var values []string
			if err := json.Unmarshal(r, &values); err != nil || len(values) != 2 || values[1] != "" {
				t.Errorf("%s: reply %s (%v)", tt.name, r, err)
				continue
			}
			got = append(got, values[0])
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
	if _, err := decideDevices([][]byte{[]byte("{}")}); err == nil {
		t.Error("a report without devices is taken")
	}
}

// TestStepOfGroups checks that each component of a heterogeneous job gets the tasks, cores, and GPUs of
// its group, and the errors for an allocation with other components.
func TestStepOfGroups(t *testing.T) {
	job, err := jobs.Parse("job.toml", []byte(`name = "x"
[[slurm.group]]
tasks_per_node = 2
cpus_per_task = 3
[[slurm.group]]
nodes = 2
gpus_per_node = 4
cpus_per_task = 2
gres = "nvme:1"
[command]
argv = ["train.py"]
`))
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Job: job, Site: generic(), Dir: rundir.Dir{Path: "/runs/x"}, Binary: "/opt/bin/ddpbatch",
		Allocation: &slurm.Allocation{JobID: "1", Nodes: []string{"c", "a", "b"}, Components: []slurm.Component{{JobID: "1", Nodes: []string{"c"}}, {JobID: "2", Nodes: []string{"a", "b"}}}}}
	for _, tt := range []struct {
		launcher jobs.Launcher
		tasks    []int
		want     []string
	}{
		{jobs.LauncherRank, []int{2, 4, 4}, []string{"--het-group=0 --nodes=1 --ntasks=2 --ntasks-per-node=2 --cpus-per-task=3", "--het-group=1 --nodes=2 --ntasks=8 --ntasks-per-node=4 --cpus-per-task=2", "--gres=gpu:4,nvme:1"}},
		{jobs.LauncherTorchrun, []int{1, 1, 1}, []string{"--het-group=0 --nodes=1 --ntasks=1 --ntasks-per-node=1 --cpus-per-task=6", "--het-group=1 --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=8", "--gres=gpu:4,nvme:1"}},
	} {
		job.Command.Launcher = tt.launcher
		line := strings.Join(buildStep(o, o.Allocation.Nodes, tt.tasks).SrunArgv(), " ")
		for _, want := range tt.want {
			if strings.Count(line, want) != 1 {
				t.Errorf("%s: %s is not once in %s", tt.launcher, want, line)
			}
		}
	}
	if err := checkComponents(o); err != nil {
		t.Error(err)
	}
	o.Allocation.Components[1].Nodes = []string{"a"}
	if err := checkComponents(o); err == nil || !strings.Contains(err.Error(), "slurm.group[1] has 2 nodes, but component 1 of the allocation has 1 (a)") {
		t.Errorf("another size: %v", err)
	}
	o.Allocation.Components = nil
	if err := checkComponents(o); err == nil || !strings.Contains(err.Error(), "the job has 2 groups of nodes, but the allocation has 1 component") {
		t.Errorf("no components: %v", err)
	}
}

// TestStepWithAllCores checks that a step with all cores of its nodes does not request a number of them,
// for ranks, for torchrun, and in one group of several.
func TestStepWithAllCores(t *testing.T) {
	for _, launcher := range []jobs.Launcher{jobs.LauncherRank, jobs.LauncherTorchrun} {
		job := &jobs.Job{Name: "x", Command: &jobs.Command{Argv: []jobs.Text{"a"}, Launcher: launcher},
			Slurm: jobs.Slurm{Nodes: 2, TasksPerNode: 4, CPUsPerTask: jobs.AllCores, Exclusive: true}}
		o := Options{Job: job, Site: generic(), Dir: rundir.Dir{Path: "/runs/x"}, Binary: "/opt/bin/ddpbatch", Allocation: &slurm.Allocation{JobID: "1", Nodes: []string{"a", "b"}}}
		if line := strings.Join(buildStep(o, o.Allocation.Nodes, []int{4, 4}).SrunArgv(), " "); strings.Contains(line, "--cpus-per-task") {
			t.Errorf("%s: got %s", launcher, line)
		}
		job.Slurm.Groups = []jobs.Group{{Nodes: 1, TasksPerNode: 4}, {Nodes: 1, TasksPerNode: 4, CPUsPerTask: 2}}
		o.Allocation.Components = []slurm.Component{{JobID: "1", Nodes: []string{"a"}}, {JobID: "2", Nodes: []string{"b"}}}
		first, second, _ := strings.Cut(strings.Join(buildStep(o, o.Allocation.Nodes, []int{4, 4}).SrunArgv(), " "), " : ")
		if strings.Contains(first, "--cpus-per-task") || !strings.Contains(second, "--cpus-per-task=") {
			t.Errorf("%s: got %s in the first group, and %s in the second", launcher, first, second)
		}
	}
}

// TestStepOfTorchrunBindsToAllRanks checks that torchrun's task on each node gets the
// resources that the bindings give to all ranks of the node together.
func TestStepOfTorchrunBindsToAllRanks(t *testing.T) {
	for _, tt := range []struct {
		name   string
		starts int // tasks per node
		want   []string
	}{
		{"rank", 4, []string{"--cpu-bind=mask_cpu:0x1,0x2,0x4,0x8", "--gpu-bind=map_gpu:0,1,2,3", "--cpus-per-task=1"}},
		{"torchrun", 1, []string{"--cpu-bind=mask_cpu:0xf", "--gpu-bind=none", "--cpus-per-task=4"}},
	} {
		job := &jobs.Job{Name: "x", Command: &jobs.Command{Argv: []jobs.Text{"a"}, Launcher: jobs.Launcher(tt.name)},
			Slurm: jobs.Slurm{Nodes: 1, TasksPerNode: 4, GPUsPerNode: 4, CPUsPerTask: 1, CPUBind: "mask_cpu:0x1,0x2,0x4,0x8", GPUBind: "map_gpu:0,1,2,3"}}
		o := Options{Job: job, Site: generic(), Dir: rundir.Dir{Path: "/runs/x"}, Binary: "/opt/bin/ddpbatch", Allocation: &slurm.Allocation{JobID: "1", Nodes: []string{"a"}}}
		argv := buildStep(o, o.Allocation.Nodes, slices.Repeat([]int{tt.starts}, len(o.Allocation.Nodes))).SrunArgv()
		for _, want := range tt.want {
			if !slices.Contains(argv, want) {
				t.Errorf("%s: %s is not in %q", tt.name, want, argv)
			}
		}
	}
}
