package main

import (
	"runtime"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/launch"
)

// TestThreads checks how many threads a rank uses if ranks share the cores of a node.
func TestThreads(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
	const head = "name = \"t\"\n[train]\nepochs = 1\nbatch = 1\n[train.model]\nkind = \"linear\"\n[train.data]\nkind = \"csv\"\npath = \"x.csv\"\ntask = \"regression\"\n[train.optimizer]\nkind = \"sgd\"\nlr = 0.1\n"
	const (
		all       = "[slurm]\ncpus_per_task = \"all\"\n"
		allOfPart = "[[slurm.group]]\ncpus_per_task = 2\n[[slurm.group]]\ncpus_per_task = \"all\"\n"
	)
	for _, c := range []struct {
		name  string
		slurm string
		info  launch.RankInfo
		env   string
		want  int
	}{
		{"alone", "", launch.RankInfo{LocalWorldSize: 1}, "", 8},
		{"three here", "", launch.RankInfo{LocalWorldSize: 3}, "", 2},
		{"more ranks than cores", "", launch.RankInfo{LocalWorldSize: 20}, "", 1},
		{"the job says so", "[slurm]\ncpus_per_task = 4\n", launch.RankInfo{LocalWorldSize: 3}, "", 4},
		{"the job says more than there are", "[slurm]\ncpus_per_task = 64\n", launch.RankInfo{LocalWorldSize: 1}, "", 8},
		{"in a step", "[slurm]\ncpus_per_task = 4\n", launch.RankInfo{JobID: "1", LocalWorldSize: 2}, "SLURM_CPUS_PER_TASK=4", 4},
		{"in a step of one's own", "", launch.RankInfo{JobID: "1", LocalWorldSize: 2}, "SLURM_CPUS_PER_TASK=3", 3},
		{"in a step that does not say", "", launch.RankInfo{JobID: "1", LocalWorldSize: 2}, "", 1},
		{"in a step that says nonsense", "", launch.RankInfo{JobID: "1", LocalWorldSize: 2}, "SLURM_CPUS_PER_TASK=two", 1},
		{"all cores here", all, launch.RankInfo{LocalWorldSize: 4}, "", 2},
		{"all cores of a step", all, launch.RankInfo{JobID: "1", LocalWorldSize: 2}, "SLURM_CPUS_ON_NODE=6", 3},
		{"all cores of a step that Slurm has divided", all, launch.RankInfo{JobID: "1", LocalWorldSize: 2}, "SLURM_CPUS_ON_NODE=16", 8},
		{"all cores of a step that does not say", all, launch.RankInfo{JobID: "1", LocalWorldSize: 2}, "", 4},
		{"all cores of a group", allOfPart, launch.RankInfo{JobID: "1", LocalWorldSize: 2}, "SLURM_CPUS_ON_NODE=16", 8},
		{"a number of cores in another group", allOfPart, launch.RankInfo{JobID: "1", LocalWorldSize: 2}, "SLURM_CPUS_PER_TASK=2", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			job, err := jobs.Parse("job.toml", []byte(head+c.slurm))
			if err != nil {
				t.Fatal(err)
			}
			p := &program{}
			if c.env != "" {
				p.Env = []string{c.env}
			}
			if got := (&rank{program: p, job: job, info: c.info}).threads(); got != c.want {
				t.Errorf("%d threads, want %d", got, c.want)
			}
		})
	}
}
