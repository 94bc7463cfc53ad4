package launchers

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func read(t *testing.T, name string) map[string]string {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name+".env"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	env := map[string]string{}
	told := false // the file states its source
	for s := bufio.NewScanner(f); s.Scan(); {
		if strings.HasPrefix(s.Text(), "# ") {
			told = true
			continue
		}
		name, value, ok := strings.Cut(s.Text(), "=")
		if !ok {
			t.Fatalf("%s: %q", f.Name(), s.Text())
		}
		env[name] = value
	}
	if !told {
		t.Errorf("%s does not say where it is from", f.Name())
	}
	return env
}

func in(env map[string]string) Lookup {
	return func(name string) (string, bool) { v, ok := env[name]; return v, ok }
}

func tell(p RankInfo) string {
	return fmt.Sprintf("%s, local %d of %d, node %d of %d, %d GPUs", p, p.LocalRank, p.LocalWorldSize, p.NodeRank, p.Nodes, p.GPUs)
}

// recorded maps each recorded environment to the expected result. Each file states its source.
var recorded = map[string]string{
	"torchrun":       "torchrun: rank 1 of 2 ranks, local 1 of 2, node 0 of 1, -1 GPUs",
	"openmpi":        "openmpi: rank 1 of 2 ranks, local 1 of 2, node -1 of -1, -1 GPUs",
	"mpich":          "hydra: rank 1 of 2 ranks, local 1 of 2, node -1 of -1, -1 GPUs",
	"mpich-hosts":    "hydra: rank 3 of 4 ranks, local 1 of 2, node -1 of -1, -1 GPUs",
	"intelmpi":       "hydra: rank 6 of 8 ranks, local 2 of 4, node -1 of -1, -1 GPUs",
	"sagemaker":      "sagemaker: host 1 of 3 hosts, local 0 of 1, node 1 of 3, 8 GPUs",
	"pytorchjob":     "kubernetes: host 2 of 4 hosts, local 0 of 1, node 2 of 4, -1 GPUs",
	"pytorchjob-old": "kubernetes: host 0 of 3 hosts, local 0 of 1, node 0 of 3, -1 GPUs",
	"trainjob":       "kubernetes: host 1 of 2 hosts, local 0 of 1, node 1 of 2, -1 GPUs",
	"jobset":         "kubernetes: host 2 of 4 hosts, local 0 of 1, node 2 of 4, -1 GPUs",
	"indexed-job":    "kubernetes: host 3 of 4 hosts, local 0 of 1, node 3 of 4, -1 GPUs",
}

// TestRecordedEnvironments checks the ranks in environments that were recorded from real
// launchers.
func TestRecordedEnvironments(t *testing.T) {
	files, err := filepath.Glob("testdata/*.env")
	if err != nil || len(files) != len(recorded) {
		t.Fatalf("%d files (%v), %d expectations", len(files), err, len(recorded))
	}
	for name, want := range recorded {
		p, ok, err := Find(in(read(t, name)), "")
		if err != nil || !ok || tell(p) != want {
			t.Errorf("%s: got %s (%v, %v), want %s", name, tell(p), ok, err, want)
		}
		// With its own name the result is equal. With the name of another launcher it is an
		// error.
		if p, ok, err := Find(in(read(t, name)), p.Launcher); err != nil || !ok || tell(p) != want {
			t.Errorf("%s by its name: %s (%v)", name, tell(p), err)
		}
		for other := range markerVariables {
			if other != p.Launcher {
				if q, ok, err := Find(in(read(t, name)), other); err == nil {
					t.Errorf("%s taken for %s: %s (%v)", name, other, tell(q), ok)
				}
			}
		}
	}
}

// TestStarts checks that the starts of launchers have IDs, if the launcher provides enough
// information.
func TestStarts(t *testing.T) {
	for name, want := range map[string]string{"openmpi": "", "trainjob": "mine-node-0-0.mine", "sagemaker": "mine-2026-01-31-10-20-30-400", "torchrun": "none 127.0.0.1 29500"} {
		p, _, err := Find(in(read(t, name)), "")
		if err != nil || want != "" && p.Start != want || want == "" && p.Start == "" {
			t.Errorf("%s: start %q (%v)", name, p.Start, err)
		}
	}
	env := read(t, "torchrun")
	env["TORCHELASTIC_RESTART_COUNT"] = "2"
	if p, _, err := Find(in(env), ""); err != nil || p.Restart != 2 {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestFindRefuses checks that contradictory and incomplete variables cause an error that lists
// them.
func TestFindRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		of   string
		set  map[string]string
		want string
	}{
		"two launchers":         {"torchrun", read(t, "intelmpi"), "contradict each other: torchrun: rank 1 of 2 ranks; hydra: rank 6 of 8 ranks"},
		"sagemaker in mpi":      {"sagemaker", read(t, "openmpi"), "contradict each other: openmpi: rank 1 of 2 ranks; sagemaker: host 1 of 3 hosts"},
		"no local rank":         {"", map[string]string{"RANK": "1", "WORLD_SIZE": "2"}, `RANK is "1", but LOCAL_RANK is not set`},
		"pmix alone":            {"", map[string]string{"PMIX_RANK": "1"}, `PMIX_RANK is "1", but OMPI_COMM_WORLD_SIZE is not set`},
		"pmi of slurm":          {"", map[string]string{"PMI_RANK": "1", "PMI_SIZE": "2"}, `PMI_RANK is "1", but MPI_LOCALRANKID is not set`},
		"job without size":      {"", map[string]string{"JOB_COMPLETION_INDEX": "0", "KUBERNETES_SERVICE_HOST": "x"}, "but WORLD_SIZE is not set: set WORLD_SIZE to the Job's completions"},
		"not a number":          {"torchrun", map[string]string{"RANK": "-1"}, `torchrun: RANK is "-1", not an integer of at least 0`},
		"beyond the world":      {"torchrun", map[string]string{"RANK": "2"}, "RANK is 2, but WORLD_SIZE is 2"},
		"local beyond":          {"mpich", map[string]string{"MPI_LOCALRANKID": "2"}, "MPI_LOCALRANKID is 2, but MPI_LOCALNRANKS is 2"},
		"more here than all":    {"mpich", map[string]string{"MPI_LOCALNRANKS": "3"}, "MPI_LOCALNRANKS is 3, but PMI_SIZE is 2"},
		"pmix disagrees":        {"openmpi", map[string]string{"PMIX_RANK": "0"}, `OMPI_COMM_WORLD_RANK is 1, but PMIX_RANK is "0"`},
		"host not in list":      {"sagemaker", map[string]string{"SM_CURRENT_HOST": "algo-9"}, `"algo-9", which is not in SM_HOSTS`},
		"hosts no list":         {"sagemaker", map[string]string{"SM_HOSTS": "algo-1"}, `SM_HOSTS is "algo-1", not a JSON list`},
		"pod of two minds":      {"pytorchjob", map[string]string{"JOB_COMPLETION_INDEX": "0"}, `RANK is "2", but JOB_COMPLETION_INDEX is "0"`},
		"trainjob of two minds": {"trainjob", map[string]string{"PET_NODE_RANK": "0"}, `PET_NODE_RANK is "0", but JOB_COMPLETION_INDEX is "1"`},
		"elastic pod":           {"", map[string]string{"KUBERNETES_SERVICE_HOST": "x", "PET_NNODES": "1:3", "PET_RDZV_ENDPOINT": "mine-worker-0:23456", "PET_RDZV_BACKEND": "c10d"}, `PET_RDZV_ENDPOINT is "mine-worker-0:23456", but RANK is not set: the pods of an elastic PyTorchJob have no fixed ranks`},
		"elastic with a master": {"pytorchjob", map[string]string{"PET_NNODES": "1:3"}, `kubernetes: PET_NNODES is "1:3", not an integer of at least 0`},
		"pod beyond":            {"indexed-job", map[string]string{"WORLD_SIZE": "3"}, "JOB_COMPLETION_INDEX is 3, but WORLD_SIZE is 3"},
	} {
		env := map[string]string{}
		if c.of != "" {
			env = read(t, c.of)
		}
		maps.Copy(env, c.set)
		p, ok, err := Find(in(env), "")
		var hinter interface{ Hint() string }
		if err == nil || !strings.Contains(err.Error(), c.want) || !errors.As(err, &hinter) || hinter.Hint() == "" {
			t.Errorf("%s: got %s (%v), %v; want %s", name, tell(p), ok, err, c.want)
		}
	}
	if p, ok, err := Find(in(nil), ""); ok || err != nil {
		t.Errorf("an empty environment: %s, %v", p, err)
	}
}
