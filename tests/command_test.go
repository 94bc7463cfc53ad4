package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/cluster"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

func script(t *testing.T, s site) {
	t.Helper()
	text, err := os.ReadFile("testdata/ddp_train.py")
	if err != nil {
		t.Fatal(err)
	}
	s.write("train.py", string(text))
}

const perRank = `name = "ddp"
[slurm]
nodes = 2
tasks_per_node = 2
time = "00:10:00"
[command]
argv = ["/usr/bin/python3", "train.py", "%d", "2", "snapshot.pt"]
`

// TestPyTorchScript checks that an unmodified PyTorch script runs with one process per rank, uses
// the fast network, and resumes from its own snapshot.
func TestPyTorchScript(t *testing.T) {
	s := newSite(t, cluster.Options{})
	script(t, s)
	_, before, _ := s.Counters("n1", "hsn0")
	s.write("job.toml", fmt.Sprintf(perRank, 4))
	id := s.submit("job.toml")
	s.completed(id)
	log := s.log("ddp", id)
	for rank := range 4 {
		mustContain(t, log, fmt.Sprintf("rank %d of 4, local rank %d: done", rank, rank%2))
	}
	mustContain(t, log, "epoch 3: loss", "(hsn0 on n1)")
	_, after, err := s.Counters("n1", "hsn0")
	if err != nil || after-before < 100_000 {
		t.Errorf("%d bytes went over hsn0, %v", after-before, err)
	}
	s.write("job.toml", fmt.Sprintf(perRank, 6))
	id = s.submit("job.toml")
	s.completed(id)
	mustContain(t, s.log("ddp", id), "rank 3: resuming at epoch 4", "epoch 5: loss")
	checkEpochs(t, s, "ddp", 6)
	mustContain(t, s.ddpbatch("status", "--json", "ddp").stdout, `"epoch": 5`, `"loss": `)
}

// checkEpochs checks that the metrics of a run have the loss of each epoch once. The program
// prints them without knowing about ddpbatch.
func checkEpochs(t *testing.T, s site, run string, epochs int) {
	t.Helper()
	var got []int
	for line := range strings.Lines(s.file("runs/" + run + "/metrics.jsonl")) {
		var m metrics.Record
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		if m.Loss == nil {
			t.Errorf("epoch %d has no loss: %s", m.Epoch, line)
		}
		got = append(got, m.Epoch)
	}
	var want []int
	for epoch := range epochs {
		want = append(want, epoch)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got metrics of epochs %v, want %v", got, want)
	}
}

// TestTorchrunPerNode checks the script of TestPyTorchScript with one torchrun per node.
func TestTorchrunPerNode(t *testing.T) {
	s := newSite(t, cluster.Options{})
	script(t, s)
	s.write("job.toml", `name = "torchrun"
[slurm]
nodes = 2
tasks_per_node = 2
time = "00:10:00"
[setup]
env = { PATH = "/usr/bin:/bin" }
[command]
launcher = "torchrun"
# Debian's torchrun 1.13 does not know its own defaults of these two under
# Python 3.11; a rank that is not there changes nothing.
argv = ["--redirects", "9:1", "--tee", "9:1", "train.py", "2", "1", "snapshot.pt"]
`)
	id := s.submit("job.toml")
	s.completed(id)
	for rank := range 4 {
		mustContain(t, s.log("torchrun", id), fmt.Sprintf("rank %d of 4, local rank %d: done", rank, rank%2))
	}
	checkEpochs(t, s, "torchrun", 2)
}

// TestProgramExitCode checks that ddpbatch returns the program's exit code and names the rank that
// exited with it.
func TestProgramExitCode(t *testing.T) {
	s := newSite(t, cluster.Options{})
	s.write("fail.sh", `[ "$RANK" = 2 ] && { echo "rank 2 has had enough" >&2; exit 7; }
exec sleep 300
`)
	s.write("job.toml", `name = "fail"
[slurm]
nodes = 2
tasks_per_node = 2
time = "00:10:00"
[command]
argv = ["/bin/sh", "fail.sh"]
`)
	id := s.submit("job.toml")
	s.ends(id, "FAILED")
	mustContain(t, s.log("fail", id), "rank 2 has had enough", "rank 2 on n2: sh ended with exit code 7")
	if o := s.ddpbatch("wait", "runs/fail"); o.code != 7 {
		t.Errorf("wait: %v", o)
	}
	for _, n := range s.Nodes()[:2] {
		if o := finish(t, s.OnNode(t.Context(), n, "pgrep", "-f", "sleep 300")); o.code == 0 {
			t.Errorf("%s: the program outlived its job: %s", n, o.stdout)
		}
	}
}

// TestProgramSignalAndEnvironment checks that a signal reaches the program once, and that the
// attempt's secret is not in its environment.
func TestProgramSignalAndEnvironment(t *testing.T) {
	s := newSite(t, cluster.Options{})
	s.write("catch.sh", `trap 'echo "rank $RANK caught TERM"; exit 0' TERM
trap 'echo "rank $RANK caught USR1"; exit 0' USR1
env | grep -c '^DDPBATCH_SECRET' | sed "s/^/rank $RANK secrets: /"
echo "rank $RANK on $(hostname): $MASTER_ADDR $NCCL_SOCKET_IFNAME $GLOO_SOCKET_IFNAME"
while :; do sleep 0.1; done
`)
	s.write("job.toml", `name = "catch"
[slurm]
nodes = 2
tasks_per_node = 1
time = "00:10:00"
signal_before_end = "60s"
[command]
argv = ["/bin/sh", "catch.sh"]
`)
	for _, tt := range []struct {
		name   string
		cancel []string
		want   string
	}{
		{"time limit", []string{"scancel", "--batch", "--signal=USR1"}, "caught USR1"},
		{"cancelled", []string{"scancel"}, "caught TERM"},
	} {
		id := s.submit("job.toml")
		waitUntil(t, "both ranks", func() bool {
			b, _ := os.ReadFile(s.run("catch") + "/slurm-" + id + ".out")
			return strings.Count(string(b), "NCCL")+strings.Count(string(b), "=hsn0") >= 2
		})
		if o := finish(t, s.Command(t.Context(), append(tt.cancel, id)...)); o.code != 0 {
			t.Fatal(o)
		}
		s.ends(id, "COMPLETED", "CANCELLED")
		waitUntil(t, "the last lines", func() bool { return strings.Contains(s.log("catch", id), "rank 1 "+tt.want) })
		log := s.log("catch", id)
		for rank := range 2 {
			if n := strings.Count(log, fmt.Sprintf("rank %d %s", rank, tt.want)); n != 1 {
				t.Errorf("%s: rank %d was signalled %d times:\n%s", tt.name, rank, n, log)
			}
			mustContain(t, log, fmt.Sprintf("rank %d secrets: 0", rank))
		}
		address, err := s.Address("n1", "hsn0")
		if err != nil {
			t.Fatal(err)
		}
		mustContain(t, log, fmt.Sprintf("rank 1 on n2: %s =hsn0 hsn0", address))
	}
}
