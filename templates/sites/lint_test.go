package sites

import (
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs"
)

// parsePair parses a profile without its head and a job without its name, and applies the profile.
func parsePair(t *testing.T, profile, job string) (*Profile, *jobs.Job) {
	t.Helper()
	p, err := Parse("x", "x.toml", []byte("title = \"x\"\nsources = [\"https://x.org\"]\nread = \"2026-11-21\"\n"+profile))
	if err != nil {
		t.Fatal(err)
	}
	j, err := jobs.Parse("job.toml", []byte("name = \"x\"\n"+job))
	if err != nil {
		t.Fatal(err)
	}
	p.Apply(j)
	return p, j
}

// keysOf returns the keys that diagnostics are about, in alphabetical order.
func keysOf(found jobs.Diagnostics) string {
	var keys []string
	for _, d := range found {
		key, _, _ := strings.Cut(d.Message, ":")
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return strings.Join(keys, " ")
}

// trainOn is a [train] table up to the value of device.
const trainOn = "[train]\nepochs = 1\nbatch = 1\nmodel.kind = \"linear\"\noptimizer = { kind = \"sgd\", lr = 0.1 }\n" +
	"data = { kind = \"synthetic\", task = \"regression\", samples = 9, inputs = 1, outputs = 1 }\ndevice = "

// TestLint checks which keys of a job a profile rejects. Values at a limit are accepted.
func TestLint(t *testing.T) {
	const (
		run     = "[command]\nargv = [\"x\"]\n"
		limits  = "[[resource]]\npartition = \"gpu\"\nnodes = 8\ntime = \"1-00:00:00\"\ngpus_per_node = 4\ncpus_per_node = 64\nmem = \"256G\"\n"
		atLimit = "slurm = { partition = \"gpu\", nodes = 8, time = \"1-00:00:00\", gpus_per_node = 4, tasks_per_node = 4, cpus_per_task = 16, mem = \"256G\" }\n"
		huge    = "slurm = { partition = \"gpu\", nodes = 999, time = \"99-0\", gpus_per_node = 99, tasks_per_node = 99, cpus_per_task = 99, mem = \"99T\" }\n"
		suffix  = "accounts = { suffix = \"_g\", suffix_by_constraint = { cpu = \"\" } }\n"
		amd     = "gpus.vendor = \"amd\"\n"
		restart = "[restart]\nrequeue = 1\non_failure = 1\n"
		groups  = "[[slurm.group]]\npartition = \"gpu\"\nnodes = %1\n[[slurm.group]]\npartition = \"gpu\"\nnodes = %2\n"
	)
	ofGroups := func(first, second string) string {
		return strings.NewReplacer("%1", first, "%2", second).Replace(groups)
	}
	for _, tt := range []struct {
		name, profile, job string
		want               string // keys, separated by spaces
	}{
		{"at the limits", limits, atLimit + run, ""},
		{"above the limits", limits, huge + run, "slurm.cpus_per_task slurm.gpus_per_node slurm.mem slurm.nodes slurm.time"},
		{"no limits", "[[resource]]\npartition = \"gpu\"\n", huge + run, ""},
		{"no resources", "", huge + run, ""},
		{"other partition", limits, strings.Replace(huge, "gpu", "debug", 1) + run, ""},
		{"missing account and a limit", "require = [\"account\"]\n" + limits, strings.Replace(atLimit, "8", "9", 1) + run, "slurm.account slurm.nodes"},
		{"groups at the limit", limits, run + ofGroups("8", "8"), ""},
		{"second group above", limits, run + ofGroups("8", "9"), "slurm.nodes"},
		{"only the first group with errors", limits, run + ofGroups("9", "9"), "slurm.nodes"},
		{"misspelled partition", limits, "slurm.partition = \"gpus\"\n" + run, "slurm.partition"},
		{"misspelled partition, one of two", limits + "[[resource]]\npartition = \"cpu\"\n", "slurm.partition = \"gpus\"\n" + run, "slurm.partition"},
		{"partition like a QOS of all partitions", limits + "[[resource]]\nqos = \"long\"\n", "slurm.partition = \"gpus\"\n" + run, ""},
		{"known partition, unknown QOS", "[[resource]]\npartition = \"gpu\"\nqos = \"long\"\n", "slurm.partition = \"gpu\"\n" + run, ""},
		{"no partition", limits, run, ""},
		{"account", suffix, "slurm = { account = \"a_g\", gpus_per_node = 1 }\n" + run, ""},
		{"account without the suffix", suffix, "slurm = { account = \"a\", gpus_per_node = 1 }\n" + run, "slurm.account"},
		{"account of a job without GPUs", suffix, "slurm.account = \"a\"\n" + run, ""},
		{"account with a constraint", suffix, "slurm = { account = \"a\", gpus_per_node = 1, constraint = \"cpu\" }\n" + run, ""},
		{"no account", suffix, "slurm.gpus_per_node = 1\n" + run, ""},
		{"requeue", "", run + restart, ""},
		{"requeue at a center that allows it", "request.requeue = true\n", run + restart, ""},
		{"requeue at a center without it", "request.requeue = false\n", run + restart, "restart.on_failure restart.requeue"},
		{"requeue as the job requires", "request.requeue = false\n", "slurm.requeue = true\n" + run + restart, ""},
		{"no requeue", "request.requeue = false\n", run, ""},
		{"container without a runtime", "", "setup.container.image = \"x.sif\"\n" + run, "setup.container.image"},
		{"container with the runtime of the center", "container.runtime = \"apptainer\"\n", "setup.container.image = \"x.sif\"\n" + run, ""},
		{"container of srun", "container.runtime = \"pyxis\"\n", "setup.container.image = \"x\"\n" + run, ""},
		{"container of srun, run once", "container.runtime = \"edf\"\n", "setup.container.image = \"x\"\n" + run + "run = \"once\"\n", "setup.container.image"},
		{"container, run once", "container.runtime = \"apptainer\"\n", "setup.container.image = \"x.sif\"\n" + run + "run = \"once\"\n", ""},
		{"CUDA on AMD GPUs", amd, "slurm.gpus_per_node = 1\n" + trainOn + "\"cuda\"\n", "train.device"},
		{"CUDA on NVIDIA GPUs", "gpus.vendor = \"nvidia\"\n", "slurm.gpus_per_node = 1\n" + trainOn + "\"cuda\"\n", ""},
		{"CUDA on unknown GPUs", "", "slurm.gpus_per_node = 1\n" + trainOn + "\"cuda\"\n", ""},
		{"CPUs of nodes with AMD GPUs", amd, trainOn + "\"cpu\"\n", ""},
		{"own program on AMD GPUs", amd, "slurm.gpus_per_node = 1\n" + run, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, job := parsePair(t, tt.profile, tt.job)
			if found := p.Lint(job); keysOf(found) != tt.want {
				t.Errorf("got %v, want %q", found, tt.want)
			}
		})
	}
}

// TestDoubts checks which keys of a job a profile warns about.
func TestDoubts(t *testing.T) {
	const (
		run   = "[command]\nargv = [\"x\"]\n"
		cores = "defaults.cpus_per_task = 8\n"
		amd   = "gpus.vendor = \"amd\"\n"
		auto  = trainOn + "\"auto\"\n"
		gpus  = "slurm.gpus_per_node = 1\n"
		typed = "slurm.gpus_per_node = \"a100:1\"\n"
	)
	for _, tt := range []struct{ name, profile, job, want string }{
		{"nothing", cores + amd, run, ""},
		{"fewer cores than the share", cores, "slurm.cpus_per_task = 7\n" + run, "slurm.cpus_per_task"},
		{"as many cores", cores, "slurm.cpus_per_task = 8\n" + run, ""},
		{"no share", "", "slurm.cpus_per_task = 1\n" + run, ""},
		{"one core of whole nodes", "", "slurm.exclusive = true\n" + run, "slurm.exclusive"},
		{"many tasks on whole nodes", "", "slurm.exclusive = true\nslurm.tasks_per_node = 128\n" + run, ""},
		{"one core for each GPU of whole nodes", "", "slurm.exclusive = true\nslurm.gpus_per_node = 4\n" + run, "slurm.exclusive"},
		{"fewer tasks than cores of whole nodes", "[[resource]]\ncpus_per_node = 128\n", "slurm.exclusive = true\nslurm.tasks_per_node = 4\n" + run, "slurm.exclusive"},
		{"as many tasks as cores of whole nodes", "[[resource]]\ncpus_per_node = 128\n", "slurm.exclusive = true\nslurm.tasks_per_node = 128\n" + run, ""},
		{"shared nodes", "", "slurm.exclusive = false\n" + run, ""},
		{"one core of whole nodes, as asked", "", "slurm.exclusive = true\nslurm.cpus_per_task = 1\n" + run, ""},
		{"the site's share of whole nodes", cores, "slurm.exclusive = true\n" + run, ""},
		{"all cores of whole nodes", cores, "slurm.cpus_per_task = \"all\"\nslurm.exclusive = true\n" + run, ""},
		{"all cores of shared nodes", cores, "slurm.cpus_per_task = \"all\"\n" + run, "slurm.cpus_per_task"},
		{"all cores of an exclusive block", "", "slurm.cpus_per_task = \"all\"\nslurm.options = [\"--exclusive=topo\"]\n" + run, ""},
		{"all cores of nodes shared with own jobs", "", "slurm.cpus_per_task = \"all\"\nslurm.options = [\"--exclusive=user\"]\n" + run, "slurm.cpus_per_task"},
		{"all cores in a partition with whole nodes", "[[resource]]\nexclusive = true\n", "slurm.cpus_per_task = \"all\"\n" + run, ""},
		{"all cores at a site with whole nodes", "request.gpus = \"none\"\n", "slurm.cpus_per_task = \"all\"\n" + run, ""},
		{"all cores of shared nodes of a group", "", "[[slurm.group]]\n[[slurm.group]]\ncpus_per_task = \"all\"\n" + run, "slurm.group[1].cpus_per_task"},
		{"type of GPU", "", typed + run, ""},
		{"type of GPU without requests", "request.gpus = \"none\"\n", typed + run, "slurm.gpus_per_node"},
		{"GPUs without requests", "request.gpus = \"none\"\n", gpus + run, ""},
		{"idle AMD GPUs", amd, gpus + auto, "train.device"},
		{"idle Intel GPUs", "gpus.vendor = \"intel\"\n", gpus + auto, "train.device"},
		{"NVIDIA GPUs", "gpus.vendor = \"nvidia\"\n", gpus + auto, ""},
		{"unknown GPUs", "", gpus + auto, ""},
		{"AMD GPUs that are not requested", amd, auto, ""},
		{"CPUs on purpose", amd, gpus + trainOn + "\"cpu\"\n", ""},
		{"own program", amd, gpus + run, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, job := parsePair(t, tt.profile, tt.job)
			if found := p.Doubts(job); keysOf(found) != tt.want {
				t.Errorf("got %v, want %q", found, tt.want)
			}
		})
	}
}

// TestCoresPerTask checks the cores of a rank that a profile sets: its default, or less if the node
// has too few cores.
func TestCoresPerTask(t *testing.T) {
	const share, node = "defaults.cpus_per_task = 16\n", "[[resource]]\ncpus_per_node = 64\n"
	for _, tt := range []struct {
		name, profile, tasks string
		want                 int
	}{
		{"neither", "", "8", 1},
		{"only the default", share, "8", 16},
		{"only the node", node, "8", 1},
		{"all fit", share + node, "4", 16},
		{"too many", share + node, "8", 8},
		{"more than cores", share + node, "80", 1},
		{"node of unknown size", share + "[[resource]]\nnodes = 4\n", "8", 16},
	} {
		if _, job := parsePair(t, tt.profile, "slurm.tasks_per_node = "+tt.tasks+"\n[command]\nargv = [\"x\"]\n"); int(job.Slurm.CPUsPerTask) != tt.want {
			t.Errorf("%s: got %d cores, want %d", tt.name, job.Slurm.CPUsPerTask, tt.want)
		}
	}
}

// TestApplyMPI checks that only a job with MPI gets the site's type of MPI.
func TestApplyMPI(t *testing.T) {
	const mpi = "step.mpi = \"pmix\"\n"
	for _, tt := range []struct{ name, profile, job, want string }{
		{"MPI", mpi, trainOn + "\"cpu\"\nbackend = \"mpi\"\n", "pmix"},
		{"MPI, and a type of the job", mpi, "slurm.mpi = \"pmi2\"\n" + trainOn + "\"cpu\"\nbackend = \"mpi\"\n", "pmi2"},
		{"another backend", mpi, trainOn + "\"cpu\"\n", ""},
		{"own program", mpi, "[command]\nargv = [\"x\"]\n", ""},
	} {
		if _, job := parsePair(t, tt.profile, tt.job); string(job.Slurm.MPI) != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, job.Slurm.MPI, tt.want)
		}
	}
}

// TestSuggested checks that the suggested resource is compatible with each default of the profile.
func TestSuggested(t *testing.T) {
	const resources = "[[resource]]\npartition = \"p1\"\nqos = \"q1\"\nconstraint = \"c1\"\nnodes = 1\n" +
		"[[resource]]\npartition = \"p1\"\nqos = \"q1\"\nconstraint = \"c2\"\nnodes = 2\n" +
		"[[resource]]\npartition = \"p1\"\nqos = \"q2\"\nconstraint = \"c1\"\nnodes = 3\n" +
		"[[resource]]\npartition = \"p2\"\nqos = \"q1\"\nconstraint = \"c1\"\nnodes = 4\n" +
		"[[resource]]\npartition = \"p3\"\nnodes = 5\n"
	for _, tt := range []struct {
		name, profile string
		want          int // nodes of the resource; 0 for none
	}{
		{"no resources", "", 0},
		{"no defaults", resources, 1},
		{"constraint", "defaults = { partition = \"p1\", constraint = \"c2\" }\n" + resources, 2},
		{"QOS", "defaults = { qos = \"q2\", constraint = \"c1\" }\n" + resources, 3},
		{"partition", "defaults.partition = \"p2\"\n" + resources, 4},
		{"resource for every QOS", "defaults = { partition = \"p3\", qos = \"q9\" }\n" + resources, 5},
		{"none", "defaults.partition = \"p9\"\n" + resources, 0},
	} {
		if p, _ := parsePair(t, tt.profile, "[command]\nargv = [\"x\"]\n"); p.Suggested().Nodes != tt.want {
			t.Errorf("%s: got %+v, want the one with %d nodes", tt.name, p.Suggested(), tt.want)
		}
	}
}
