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
