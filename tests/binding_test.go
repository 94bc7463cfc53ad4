package tests

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

// TestTorchrunGetsTheCoresOfAllRanks checks how a site's CPU masks are applied: the workers of
// torchrun share the cores of all masks, and each rank that srun starts gets one mask.
func TestTorchrunGetsTheCoresOfAllRanks(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 1, CPUs: 2, GPUs: -1, SlurmConf: []string{"TaskPlugin=task/affinity"}})
	generic, err := os.ReadFile("../templates/sites/generic.toml")
	if err != nil {
		t.Fatal(err)
	}
	s.write("site.toml", strings.Replace(string(generic), "[step]", "[step]\ncpu_bind = \"mask_cpu:0x1,0x2\"", 1))
	s.write("cores.py", `import os
os.write(1, ("rank %s has cores %s\n" % (os.environ["RANK"], sorted(os.sched_getaffinity(0)))).encode())
`)
	for name, tt := range map[string]struct {
		command string
		want    []string
	}{
		"rank":     {`argv = ["/usr/bin/python3", "cores.py"]`, []string{"rank 0 has cores [0]", "rank 1 has cores [1]"}},
		"torchrun": {`argv = ["--redirects", "9:1", "--tee", "9:1", "cores.py"]`, []string{"rank 0 has cores [0, 1]", "rank 1 has cores [0, 1]"}},
	} {
		s.write(name+".toml", fmt.Sprintf("name = %q\nsite = \"./site.toml\"\n[slurm]\ntasks_per_node = 2\ntime = \"00:10:00\"\n[setup]\nenv = { PATH = \"/usr/bin:/bin\" }\n[command]\nlauncher = %[1]q\n%s\n", name, tt.command))
		id := s.submit(name + ".toml")
		s.completed(id)
		mustContain(t, s.log(name, id), tt.want...)
	}
}

// TestAllCores checks that the ranks of a job with cpus_per_task = "all" may use all cores of their
// nodes, in spite of the default of the site, and that the ranks of a node divide them if Slurm binds
// as many tasks as the node has cores.
func TestAllCores(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 1, CPUs: 2, GPUs: -1, SlurmConf: []string{"TaskPlugin=task/affinity"}})
	generic, err := os.ReadFile("../templates/sites/generic.toml")
	if err != nil {
		t.Fatal(err)
	}
	s.write("site.toml", string(generic)+"\n[defaults]\ncpus_per_task = 1\n")
	s.write("cores.py", `import os
os.write(1, ("rank %s of %s has cores %s of %s, and %s cores\\n" % (os.environ["RANK"], os.environ["WORLD_SIZE"], sorted(os.sched_getaffinity(0)),
    os.environ["SLURM_CPUS_ON_NODE"], os.environ.get("SLURM_CPUS_PER_TASK", "all"))).encode())
`)
	const rank, torchrun = `argv = ["/usr/bin/python3", "cores.py"]`, `argv = ["--redirects", "9:1", "--tee", "9:1", "cores.py"]`
	for _, tt := range []struct {
		name, launcher, cores string
		tasks                 int
		command               string
		want                  []string
	}{
		{"default", "rank", "", 1, rank, []string{"rank 0 of 1 has cores [0] of 1, and 1 cores"}},
		{"one-rank", "rank", `cpus_per_task = "all"`, 1, rank, []string{"rank 0 of 1 has cores [0, 1] of 2, and all cores"}},
		{"two-ranks", "rank", `cpus_per_task = "all"`, 2, rank, []string{"rank 0 of 2 has cores [0] of 2, and all cores", "rank 1 of 2 has cores [1] of 2, and all cores"}},
		{"torchrun", "torchrun", `cpus_per_task = "all"`, 2, torchrun, []string{"rank 0 of 2 has cores [0, 1] of 2, and all cores", "rank 1 of 2 has cores [0, 1] of 2, and all cores"}},
	} {
		s.write(tt.name+".toml", fmt.Sprintf("name = %q\nsite = \"./site.toml\"\n[slurm]\nexclusive = true\n%s\ntasks_per_node = %d\ntime = \"00:10:00\"\n[setup]\nenv = { PATH = \"/usr/bin:/bin\" }\n[command]\nlauncher = %q\n%s\n",
			tt.name, tt.cores, tt.tasks, tt.launcher, tt.command))
		id := s.testAndSubmit(tt.name + ".toml")
		s.completed(id)
		mustContain(t, s.log(tt.name, id), tt.want...)
	}
}

// TestExclusiveScript checks that the ranks of a converted script with --exclusive have as many cores as the
// tasks of the script, for one and for several tasks per node.
func TestExclusiveScript(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 2, CPUs: 8, GPUs: -1})
	s.write("cores.sh", `printf 'task %s has %s of %s cores\n' "$SLURM_PROCID" "${SLURM_CPUS_PER_TASK-all}" "$SLURM_CPUS_ON_NODE"`)
	for _, tasks := range []int{1, 4} {
		name := fmt.Sprintf("tasks-%d", tasks)
		script := fmt.Sprintf("#!/bin/bash\n#SBATCH --job-name=%s\n#SBATCH --exclusive\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=%d\n#SBATCH --time=10\n#SBATCH --output=%[1]s.out\nsrun sh cores.sh\n", name, tasks)
		s.write(name+".sbatch", script)
		cmd := s.Command(t.Context(), "sbatch", "--wait", name+".sbatch")
		cmd.Dir = s.home
		if o := finish(t, cmd); o.code != 0 {
			t.Fatalf("%v\n%s", o, s.file(name+".out"))
		}
		if o := s.ddpbatch("init", "--from", name+".sbatch", name+".toml"); o.code != 0 || strings.Contains(o.stderr, "cores") {
			t.Fatal(o)
		}
		mustContain(t, s.file(name+".toml"), `cpus_per_task = "all"`, "exclusive = true")
		id := s.submit(name + ".toml")
		s.completed(id)
		for task := range 2 * tasks {
			want := fmt.Sprintf("task %d has all of 8 cores\n", task)
			mustContain(t, s.file(name+".out"), want)
			mustContain(t, s.log(name, id), want)
		}
	}
}
