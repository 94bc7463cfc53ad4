package tests

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

// overMPI is a small job with a backend and additional keys of [slurm] and [network].
const overMPI = `name = "%s"
[slurm]
time = "00:10:00"
%s
[network]
join_timeout = "60s"
%s
[train]
epochs = 1
batch = 32
log_every = "1 steps"
%s
[train.model]
kind = "mlp"
hidden = [32]
[train.data]
kind = "synthetic"
task = "classification"
samples = 1280
inputs = 16
outputs = 4
[train.optimizer]
kind = "sgd"
lr = 0.1
`

// TestMPIUnderSrun checks that training with each MPI library under its matching srun plugin gives
// the same losses as TCP, and that a mismatch gives an error with a hint.
func TestMPIUnderSrun(t *testing.T) {
	s := newSite(t, cluster.Options{})
	run := func(name, slurm, network, train string) (id string) {
		s.write(name+".toml", fmt.Sprintf(overMPI, name, slurm, network, train))
		return s.submit(name + ".toml")
	}
	s.completed(run("tcp", "nodes = 2\ntasks_per_node = 1", "", `backend = "tcp"`))
	want := losses(t, s.run("tcp"))
	for _, tt := range []struct{ name, slurm, network string }{
		{"openmpi", "nodes = 2\ntasks_per_node = 1", ""},
		{"mpich", "nodes = 2\ntasks_per_node = 1\nmpi = \"pmi2\"", `mpi_library = "libmpich.so.12"`},
	} {
		id := run(tt.name, tt.slurm, tt.network, `backend = "mpi"`)
		s.completed(id)
		mustContain(t, s.log(tt.name, id), "finished: 1 epoch")
		got := losses(t, s.run(tt.name))
		if len(got) != len(want) || len(got) < 20 {
			t.Fatalf("%s: %d losses, want %d", tt.name, len(got), len(want))
		}
		for i := range want {
			if math.Abs(got[i]-want[i]) > 1e-6*math.Abs(want[i]) {
				t.Errorf("%s: loss %d is %v, over TCP %v", tt.name, i, got[i], want[i])
			}
		}
		text, err := os.ReadFile(filepath.Join(s.run(tt.name), "logs", "rank-00000.jsonl"))
		if err != nil || !bytes.Contains(text, []byte(`"transport":"mpi"`)) {
			t.Errorf("%s: the rank's log does not say that it used MPI: %v", tt.name, err)
		}
	}

	id := run("mismatch", "nodes = 1\ntasks_per_node = 2\nmpi = \"pmi2\"", `mpi_library = "libmpi.so.40"`, `backend = "mpi"`)
	s.ends(id, "FAILED")
	mustContain(t, s.log("mismatch", id), "Open MPI requires PMIx", `set slurm.mpi to "pmix"`)
}

// losses returns the losses of all training steps of a run.
func losses(t *testing.T, run string) (out []float64) {
	t.Helper()
	for _, r := range figures(t, run) {
		if r.Kind == "train" {
			out = append(out, float64(*r.Loss))
		}
	}
	return out
}
