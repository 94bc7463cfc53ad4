package tests

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/tests/cluster"
	"github.com/ddpbatch/ddpbatch/tests/gpusim"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

// onGPUs is a job with one simulated GPU per rank. The first rank of a node has the last GPU. The
// nodes share the fabric's directory, which replaces the links between GPUs.
const onGPUs = `name = "%s"
[slurm]
nodes = 2
tasks_per_node = 2
gpus_per_node = 2
gpu_bind = "map_gpu:1,0"
time = "00:05:00"
[setup]
lines = ["export LD_LIBRARY_PATH=%s GPUSIM_DEVICES=2 GPUSIM_FABRIC=%s"]
[train]
device = "cuda"
%s
batch = 4
seed = 1
log_every = "1 step"
first_bucket = "4 KiB"
bucket = "8 KiB"
[train.model]
kind = "gpt"
layers = 1
heads = 2
width = 16
context = 16
[train.data]
kind = "text"
path = "text.txt"
[train.optimizer]
kind = "adamw"
lr = 0.003
clip_norm = 1.0
`

// TestGPUsOfSeveralNodes trains with ranks on two nodes, on the GPUs that Slurm assigned to them.
// It checks that the result is equal to the result on CPUs, both over NCCL and through host memory,
// and that a program without GPU support resumes the run. It then kills a rank, and checks that the
// error names the rank and that no other rank hangs in NCCL.
func TestGPUsOfSeveralNodes(t *testing.T) {
	if _, err := exec.LookPath(gpusim.Compiler); err != nil {
		missing(t, gpusim.Compiler+", which tests/setup.sh installs")
	}
	s := newSite(t, cluster.Options{})
	onProcessors := func(dir string) outcome { // by the program without GPU support
		return s.ddpbatch("launch", "nccl.toml", "-n", "4", "--run-dir", dir, "--set", "train.device=cpu", "--set", "train.epochs=2")
	}
	withGPUs := s
	withGPUs.program = buildProgram(t, runtime.GOARCH, "gcc")
	libraries, err := gpusim.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.write("text.txt", strings.Repeat("all work and no play; ", 120))
	submit := func(name, train string) (id string) {
		s.write(name+".toml", fmt.Sprintf(onGPUs, name, libraries, s.home, train))
		return withGPUs.submit(name + ".toml")
	}
	near := func(what string, got, want []float64) {
		t.Helper()
		if len(got) != len(want) || len(got) < 10 {
			t.Errorf("%s: %d steps, want %d", what, len(got), len(want))
			return
		}
		for i, loss := range want {
			if !(math.Abs(got[i]-loss) <= 1e-4*loss) {
				t.Errorf("%s, step %d: loss %v, want %v", what, i+1, got[i], loss)
				return
			}
		}
	}
	overNCCL := submit("nccl", "epochs = 1")
	byHosts := submit("hosts", "epochs = 1\nbackend = \"tcp\"\nstrategy = \"zero2\"")
	if o := onProcessors("whole"); o.code != 0 {
		t.Fatal(o)
	}
	want := losses(t, filepath.Join(s.home, "whole"))
	for name, id := range map[string]string{"nccl": overNCCL, "hosts": byHosts} {
		s.completed(id)
		mustContain(t, s.log(name, id), "4 ranks on 2 nodes", "finished: 1 epoch,")
		near(name, losses(t, s.run(name)), want[:len(want)/2])
	}
	for rank := range 4 {
		of := 1 - rank%2 // GPU of the local rank, from map_gpu
		mustContain(t, s.file(fmt.Sprintf("runs/nccl/logs/rank-%05d.jsonl", rank)), `"exchange":"nccl"`,
			fmt.Sprintf(`"gpu":"GPU-67707573-696d-0000-0000-%012d"`, of))
		mustContain(t, s.file(fmt.Sprintf("runs/hosts/logs/rank-%05d.jsonl", rank)), `"exchange":"through host memory"`)
	}
	if o := onProcessors("runs/nccl"); o.code != 0 || !strings.Contains(o.stdout, "resuming after step ") {
		t.Fatal(o)
	}
	near("on processors from there", losses(t, s.run("nccl")), want)

	id := submit("killed", "epochs = 100000")
	waitUntil(t, "a few steps", func() bool { return len(figures(t, s.run("killed"))) > 3 })
	if o := finish(t, s.OnNode(t.Context(), "n2", "pkill", "-KILL", "--newest", "-f", "ddpbatch run")); o.code != 0 {
		t.Fatal(o)
	}
	killed := time.Now()
	s.ends(id, "FAILED")
	const most = 2 * time.Minute // ranks have 3 s to exit; the rest is for a busy machine; network.collective_timeout is 5 minutes
	if took := time.Since(killed); took > most {
		t.Errorf("the job was over %v after the kill", took)
	}
	var f struct {
		First *rendezvous.Failure `json:"first"`
	}
	text, err := os.ReadFile(filepath.Join(s.run("killed"), "failure.json"))
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil || f.First == nil || f.First.Rank < 2 || f.First.Host != "n2" || f.First.Signal != "SIGKILL" {
		t.Fatalf("%v: failure.json:\n%s", err, text)
	}
	mustContain(t, s.log("killed", id), fmt.Sprintf("rank %d on n2 was lost at step ", f.First.Rank))
	for _, node := range []string{"n1", "n2"} {
		if o := finish(t, s.OnNode(t.Context(), node, "pgrep", "-f", "ddpbatch run")); o.code == 0 {
			t.Errorf("%s: left behind: %s", node, o.stdout)
		}
	}
}
