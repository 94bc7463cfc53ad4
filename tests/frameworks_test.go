package tests

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

// TestFrameworkLaunchers connects four ranks on two nodes with a program that reads the same
// variables as Accelerate, DeepSpeed, and Lightning. The frameworks themselves are not installed.
func TestFrameworkLaunchers(t *testing.T) {
	needsPyTorch(t)
	s := newSite(t, cluster.Options{})
	text, err := os.ReadFile("testdata/frameworks.py")
	if err != nil {
		t.Fatal(err)
	}
	s.write("frameworks.py", string(text))
	ids := map[string]string{}
	for _, name := range []string{"accelerate", "deepspeed", "lightning"} {
		s.write(name+".toml", fmt.Sprintf(`name = %q
[slurm]
nodes = 2
tasks_per_node = 2
time = "00:10:00"
[setup]
env = { PATH = "/usr/bin:/bin", OMP_NUM_THREADS = "1" }
[command]
launcher = %q
argv = ["frameworks.py", %q]
`, name, name, name))
		ids[name] = s.submit(name + ".toml")
		s.ends(ids[name], "COMPLETED")
		log := s.file("runs/" + name + "/slurm-" + ids[name] + ".out")
		for rank := range 4 {
			if want := fmt.Sprintf("%s: rank %d of 4, sum 10\n", name, rank); strings.Count(log, want) != 1 {
				t.Errorf("not once %q in\n%s", want, log)
			}
		}
	}
}
