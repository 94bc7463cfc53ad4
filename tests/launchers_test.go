package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// showsItsRank is a job file with a program that prints its rank variables.
const showsItsRank = `name = "shows"
[slurm]
tasks_per_node = 2
[command]
argv = ["sh", "-c", "echo rank $RANK of $WORLD_SIZE local $LOCAL_RANK of $LOCAL_WORLD_SIZE node $GROUP_RANK at ${MASTER_ADDR:+address}${MASTER_PORT:+port} $(test $TORCHELASTIC_RUN_ID = $DDPBATCH_RUN_ID && echo own) ${TORCHELASTIC_USE_AGENT_STORE-clean}"]
`

// TestOtherLaunchers runs one job file with each launcher on this machine: torchrun, both kinds of
// mpirun, and one process per host as SageMaker and Kubernetes start it. It checks that a stale
// rendezvous file of an earlier start does no harm.
func TestOtherLaunchers(t *testing.T) {
	for name, c := range map[string]struct {
		needs string
		argv  []string
		env   []string
	}{
		"torchrun":   {"/usr/bin/torchrun", []string{"/usr/bin/torchrun", "--redirects", "9:1", "--tee", "9:1", "--no_python", "--nproc_per_node", "2"}, nil},
		"openmpi":    {"mpirun.openmpi", []string{"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2"}, nil},
		"hydra":      {"mpirun.mpich", []string{"mpirun.mpich", "-n", "2"}, nil},
		"sagemaker":  {"sh", nil, []string{`SM_HOSTS=["algo-1"]`, "SM_CURRENT_HOST=algo-1", "SM_NUM_GPUS=0", "TRAINING_JOB_NAME=x"}},
		"kubernetes": {"sh", nil, []string{"KUBERNETES_SERVICE_HOST=10.96.0.1", "JOB_COMPLETION_INDEX=0", "WORLD_SIZE=1"}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(c.needs); err != nil {
				missing(t, c.needs+", which tests/setup.sh installs")
			}
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "job.toml"), []byte(showsItsRank), 0o600); err != nil {
				t.Fatal(err)
			}
			argv := append(c.argv[:len(c.argv):len(c.argv)], binary, "run", "job.toml")
			run := func() string {
				t.Helper()
				cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
				cmd.Dir, cmd.Env = dir, append(os.Environ(), c.env...)
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				return string(out)
			}
			out := run()
			for _, want := range []string{
				"rank 0 of 2 local 0 of 2 node 0 at addressport own clean\n", "rank 1 of 2 local 1 of 2 node 0 at addressport own clean\n",
				"2 ranks on 1 node; ",
			} {
				if strings.Count(out, want) != 1 {
					t.Errorf("not once %q in\n%s", want, out)
				}
			}
			left, err := filepath.Glob(filepath.Join(dir, "runs/shows/rendezvous-*"))
			if err != nil || len(left) > 0 {
				t.Errorf("left behind: %q (%v)", left, err)
			}
			if name != "hydra" { // it has no start identifier
				return
			}
			secret, err := wire.NewSecret()
			if err != nil {
				t.Fatal(err)
			}
			stale := filepath.Join(dir, "runs/shows/rendezvous-hydra-e3b0c44298fc-0.json")
			if err := os.WriteFile(stale, []byte(`{"addresses":["127.0.0.1:1"],"secret":"`+secret.Encode()+`"}`), 0o600); err != nil {
				t.Fatal(err)
			}
			if out := run(); strings.Count(out, "rank 1 of 2") != 1 {
				t.Errorf("after a start that left its file:\n%s", out)
			}
			if _, err := os.Stat(stale); err == nil {
				t.Error("the file was not the one that ranks look for")
			}
		})
	}
}

// TestLaunchersThatDisagree checks that the error shows the values of both launchers if they
// contradict each other.
func TestLaunchersThatDisagree(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "job.toml"), []byte(showsItsRank), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, "run", "job.toml")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=8")
	out, err := cmd.CombinedOutput()
	if err == nil || !regexp.MustCompile(`(?s)torchrun: rank 0 of 2 ranks; openmpi: rank 3 of 8 ranks.*hint: .*--launcher torchrun`).Match(out) {
		t.Errorf("%v\n%s", err, out)
	}
}
