package tests

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

// fashion is the main job: an MLP on all of Fashion-MNIST.
const fashion = `name = "%s"
[slurm]
nodes = %d
tasks_per_node = %d
time = "00:10:00"
[train]
epochs = %d
batch = %d
seed = 1
log_every = "50 steps"
[train.model]
kind = "mlp"
hidden = [32]
[train.data]
kind = "idx"
path = "/usr/share/datasets/fashion-mnist"
[train.optimizer]
kind = "sgd"
lr = 0.1
momentum = 0.9
[checkpoint]
every = "100 steps"
`

// TestMainJobOnThreeNodes checks that the main job completes on three nodes, that it is as accurate
// as one rank with the same global batch size, and that its traffic uses the fast network.
func TestMainJobOnThreeNodes(t *testing.T) {
	s := newSite(t, cluster.Options{})
	s.write("job.toml", fmt.Sprintf(fashion, "fashion", 3, 2, 2, 32))
	before := map[string]uint64{}
	for _, n := range s.Nodes()[:3] {
		for _, link := range []string{"hsn0", "eth0"} {
			_, before[n+link], _ = s.Counters(n, link)
		}
	}
	id := s.submit("job.toml")
	s.completed(id)
	log := s.log("fashion", id)
	mustContain(t, log, "6 ranks on 3 nodes", "hsn0", "finished: 2 epochs")

	// The two ranks of a node reduce through shared memory. Each of the three nodes then sends
	// 2*2/3 of the gradients in each of the 626 steps. The gradients are 784*32+32+32*10+10 floats.
	perNode := uint64(626 * 2 * 2 * 4 * (784*32 + 32 + 320 + 10) / 3)
	for _, n := range s.Nodes()[:3] {
		_, fast, err := s.Counters(n, "hsn0")
		if err != nil {
			t.Fatal(err)
		}
		_, slow, err := s.Counters(n, "eth0")
		if err != nil {
			t.Fatal(err)
		}
		fast, slow = fast-before[n+"hsn0"], slow-before[n+"eth0"]
		if fast < perNode || slow > fast/10 {
			t.Errorf("%s sent %d bytes over hsn0 (at least %d are due) and %d over eth0", n, fast, perNode, slow)
		}
	}
	checkOwnerOnly(t, s.run("fashion"))

	s.write("one.toml", fmt.Sprintf(fashion, "one", 1, 1, 2, 6*32))
	if o := here(t, s.home, "launch", "one.toml", "-n", "1"); o.code != 0 {
		t.Fatal(o)
	}
	many, one := lastAccuracy(t, s.run("fashion")), lastAccuracy(t, s.run("one"))
	if math.Abs(many-one) > 0.005 || many < 0.80 {
		t.Errorf("accuracy %.4f on six ranks, %.4f on one", many, one)
	}

	// A finished run that is submitted again does nothing and completes.
	done := weights(t, s.run("fashion"))
	again := s.submit("job.toml")
	s.completed(again)
	mustContain(t, s.log("fashion", again), "already finished")
	if weights(t, s.run("fashion")) != done {
		t.Error("the weights of a finished run changed")
	}
}

// TestCancelledAndSubmittedAgain cancels a run, submits it again, and checks that its weights are
// equal to those of an undisturbed run.
func TestCancelledAndSubmittedAgain(t *testing.T) {
	s := newSite(t, cluster.Options{})
	s.write("job.toml", fmt.Sprintf(fashion, "cut", 3, 2, 2, 32))
	whole := s.submit("job.toml", "--run-dir", "runs/whole")
	s.completed(whole)

	cut := s.submit("job.toml")
	waitUntil(t, "the run to be well under way", func() bool {
		f := figures(t, s.run("cut"))
		return len(f) > 0 && f[len(f)-1].Step >= 250
	})
	resume := s.hold("cut")
	// ddpbatch rejects a second submission of a running run.
	if o := s.ddpbatch("submit", "job.toml"); o.code == 0 || !strings.Contains(o.stderr, cut) {
		t.Errorf("a second submission: %v", o)
	}
	if o := s.ddpbatch("cancel", "runs/cut"); o.code != 0 {
		t.Fatal(o)
	}
	resume()
	s.ends(cut, "CANCELLED")
	if strings.Contains(s.log("cut", cut), "finished:") {
		t.Fatal("the job had finished before it was cancelled")
	}
	again := s.submit("job.toml")
	s.completed(again)
	mustContain(t, s.log("cut", again), "resuming after step")
	if got, want := weights(t, s.run("cut")), weights(t, s.run("whole")); got != want {
		t.Errorf("other weights:\n%s\n%s", got, want)
	}
	steps := map[string]bool{}
	for _, r := range figures(t, s.run("cut")) {
		key := fmt.Sprint(r.Kind, r.Step)
		if steps[key] {
			t.Errorf("the metrics have %s twice", key)
		}
		steps[key] = true
	}
	if o := s.ddpbatch("status", "--json"); o.code != 0 || !strings.Contains(o.stdout, `"finished": true`) || !strings.Contains(o.stdout, "COMPLETED") {
		t.Errorf("status: %v", o)
	}
}

// signalBefore is the value of slurm.signal_before_end that reachTimeLimit needs.
const signalBefore = "2m"

// reachTimeLimit waits for more metrics, reduces the time limit of the job, and waits until Slurm
// has signaled it for the n-th time. The job has at least another minute. Slurm checks time limits
// every 30 seconds. The ranks are held meanwhile, so that other tests can use the cores.
func (s site) reachTimeLimit(name, id string, nth int) {
	s.t.Helper()
	before := len(figures(s.t, s.run(name)))
	waitUntil(s.t, "more figures", func() bool { return len(figures(s.t, s.run(name))) > before+2 })
	resume := s.hold(name)
	o := finish(s.t, s.Command(s.t.Context(), "squeue", "--noheader", "--format=%M", "--job="+id))
	var minutes, seconds int
	if _, err := fmt.Sscanf(strings.TrimSpace(o.stdout), "%d:%d", &minutes, &seconds); err != nil {
		s.t.Fatal(err, o)
	}
	setTimeLimit(s.t, s.Cluster, id, minutes+2)
	waitUntil(s.t, "the time limit", func() bool {
		log, _ := os.ReadFile(filepath.Join(s.run(name), "slurm-"+id+".out"))
		return strings.Count(string(log), "the time limit is near") >= nth
	})
	resume()
}

// TestTimeLimitSaves checks that a job saves a checkpoint and stops when its time limit is near.
func TestTimeLimitSaves(t *testing.T) {
	s := newSite(t, cluster.Options{})
	text := strings.Replace(fmt.Sprintf(fashion, "limit", 2, 1, 100000, 32), `time = "00:10:00"`, "time = \"00:10:00\"\nsignal_before_end = \""+signalBefore+"\"", 1)
	s.write("job.toml", text)
	id := s.submit("job.toml")
	s.reachTimeLimit("limit", id, 1)
	s.ends(id, "FAILED") // exit code 3: the run did not finish
	mustContain(t, s.log("limit", id), "the time limit is near", "stopped after step")
	if o := s.ddpbatch("wait", "runs/limit"); o.code != 3 {
		t.Errorf("wait: %v", o)
	}
}

// TestRequeuesItselfAtTheTimeLimit checks that with restart.requeue the job requeues itself and
// resumes, and that its log and metrics have no gaps and no duplicates.
func TestRequeuesItselfAtTheTimeLimit(t *testing.T) {
	s := newSite(t, cluster.Options{})
	text := strings.Replace(fmt.Sprintf(fashion, "again", 2, 1, 100000, 32), `time = "00:10:00"`, "time = \"00:10:00\"\nsignal_before_end = \""+signalBefore+"\"", 1)
	text = strings.NewReplacer("50 steps", "1000 steps", "100 steps", "5000 steps").Replace(text)
	s.write("job.toml", text+"[restart]\nrequeue = 1\n")
	id := s.submit("job.toml")
	s.reachTimeLimit("again", id, 1)
	extendTimeLimit(t, s.Cluster, id)
	startRequeued(t, s.Cluster, id)
	s.reachTimeLimit("again", id, 2)
	s.ends(id, "FAILED") // second time limit, exit code 3
	mustContain(t, s.log("again", id), "requeued as job "+id+" (1 of 1)", "resuming after step", "stopped after step",
		"not requeued: the job has been restarted 1 times, and restart.requeue is 1")
	last := 0
	for i, f := range figures(t, s.run("again")) {
		if f.Kind != "train" {
			continue
		}
		if f.Step <= last || f.Step%1000 == 0 && f.Step-last > 1000 {
			t.Fatalf("line %d of the metrics: got step %d after step %d", i+1, f.Step, last)
		}
		last = f.Step
	}
}

// TestBareSrun checks that ranks that srun starts without a launcher find rank 0 through a file.
func TestBareSrun(t *testing.T) {
	s := newSite(t, cluster.Options{})
	s.write("job.toml", fmt.Sprintf(fashion, "bare", 2, 2, 1, 96))
	cmd := s.Command(t.Context(), "srun", "-N2", "--ntasks-per-node=2", binary, "run", "job.toml")
	cmd.Dir = s.home
	o := finish(t, cmd)
	if o.code != 0 {
		t.Fatal(o)
	}
	mustContain(t, o.stdout, "4 ranks on 2 nodes", "hsn0", "finished: 1 epoch,")
	if left, _ := filepath.Glob(filepath.Join(s.run("bare"), "rendezvous-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	// A second run cannot start in the directory of a running run.
	s.write("job.toml", fmt.Sprintf(fashion, "bare", 2, 2, 100000, 96))
	first := s.Command(t.Context(), "srun", "-N2", "--ntasks-per-node=2", binary, "run", "job.toml")
	first.Dir = s.home
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the first run", func() bool { f := figures(t, s.run("bare")); return len(f) > 0 && f[len(f)-1].Step > 200 })
	second := s.ddpbatch("launch", "job.toml", "-n", "1")
	if second.code != 1 || !strings.Contains(second.stderr, "is already running there") {
		t.Errorf("a second run: %v", second)
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	if o := finish(t, s.Command(t.Context(), "scancel", "--name=ddpbatch")); o.code != 0 {
		t.Fatal(o)
	}

	// Without srun, a rank refuses to start as a rank 0 without peers.
	s.write("skip.sh", "#!/bin/sh\n"+binary+" run job.toml\n")
	cmd = s.Command(t.Context(), "sbatch", "--wait", "-N2", "--ntasks-per-node=2", "-o", "skip.out", "skip.sh")
	cmd.Dir = s.home
	if o := finish(t, cmd); o.code == 0 {
		t.Errorf("a rank without srun: %v", o)
	}
	out, err := os.ReadFile(filepath.Join(s.home, "skip.out"))
	if err != nil {
		t.Fatal(err)
	}
	mustContain(t, string(out), "ddpbatch: error:", "ddpbatch: hint:", "srun")
}

// TestMissingRankIsNamed checks that the error names a rank that does not start, and its host,
// within the join timeout, and that the job ends.
func TestMissingRankIsNamed(t *testing.T) {
	s := newSite(t, cluster.Options{})
	s.write("sleep.sh", "#!/bin/sh\nexec sleep 600\n")
	if err := os.Chmod(filepath.Join(s.home, "sleep.sh"), 0o700); err != nil {
		t.Fatal(err)
	}
	// On n2 a different file is mounted over the program.
	if o := finish(t, s.OnNode(t.Context(), "n2", "mount", "--bind", filepath.Join(s.home, "sleep.sh"), binary)); o.code != 0 {
		t.Fatal(o)
	}
	s.write("job.toml", fmt.Sprintf(fashion, "missing", 3, 2, 1, 32)+"[network]\njoin_timeout = \"5s\"\n")
	id := s.submit("job.toml")
	s.ends(id, "FAILED")
	mustContain(t, s.log("missing", id), "2 of 6 ranks did not join within 5s: ranks 2, 3 on n2", "ddpbatch: hint:")
	if o := s.ddpbatch("wait", "runs/missing"); o.code != 4 || !strings.Contains(o.stderr, "ranks 2, 3 on n2") {
		t.Errorf("wait: %v", o)
	}
}

// TestRunDirectoryIsNotShared checks that ranks immediately report a run directory that their node
// cannot see, so that no rank waits for the join timeout.
func TestRunDirectoryIsNotShared(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 2})
	s.write("job.toml", fmt.Sprintf(fashion, "local", 2, 2, 1, 32)+"[network]\njoin_timeout = \"10m\"\n")
	if err := os.Mkdir(filepath.Join(s.home, "runs"), 0o700); err != nil {
		t.Fatal(err)
	}
	if o := finish(t, s.OnNode(t.Context(), "n2", "mount", "-t", "tmpfs", "none", filepath.Join(s.home, "runs"))); o.code != 0 {
		t.Fatal(o)
	}
	id := s.submit("job.toml")
	s.ends(id, "FAILED")
	const reason, hint = "does not exist on n2", "file system that all nodes share"
	mustContain(t, s.log("local", id), reason, hint)
	mustContain(t, s.file("runs/local/failure.json"), reason, hint, `"host": "n2"`)
	for _, command := range []string{"wait", "status"} {
		if o := s.ddpbatch(command, "local"); !strings.Contains(o.stdout+o.stderr, reason) {
			t.Errorf("%s: %v", command, o)
		}
	}
	if strings.Contains(s.log("local", id), "did not join") {
		t.Errorf("the launcher waited:\n%s", s.log("local", id))
	}
}

// TestKilledRankIsNamed kills a rank. It checks that the error names the rank, that the other ranks
// exit immediately, and that the next submission resumes the run.
func TestKilledRankIsNamed(t *testing.T) {
	s := newSite(t, cluster.Options{})
	s.write("job.toml", fmt.Sprintf(fashion, "killed", 2, 2, 100000, 32))
	id := s.submit("job.toml")
	waitUntil(t, "a few steps", func() bool { return len(figures(t, s.run("killed"))) > 3 })
	if o := finish(t, s.OnNode(t.Context(), "n2", "pkill", "-KILL", "--newest", "-f", "ddpbatch run")); o.code != 0 {
		t.Fatal(o)
	}
	killed := time.Now()
	s.ends(id, "FAILED")
	t.Logf("the job was over %v after the kill", time.Since(killed).Round(100*time.Millisecond))
	log := s.log("killed", id)
	if !strings.Contains(log, "rank 2 on n2 was lost at step") && !strings.Contains(log, "rank 3 on n2 was lost at step") {
		t.Errorf("the log does not name the rank:\n%s", log)
	}
	var failure struct {
		Job   string `json:"job_id"`
		First struct {
			Rank, Exit     int
			Signal, Reason string
		}
	}
	text, err := os.ReadFile(filepath.Join(s.run("killed"), "failure.json"))
	if err == nil {
		err = json.Unmarshal(text, &failure)
	}
	if f := failure.First; err != nil || failure.Job != id || f.Rank < 2 || f.Exit != 128+9 || f.Signal != "SIGKILL" || !strings.HasSuffix(f.Reason, ": its process was killed by SIGKILL") {
		t.Errorf("%v: failure.json:\n%s", err, text)
	}
	mustContain(t, log, "srun: error: n2: task ", ": its process was killed by SIGKILL")
	if o := s.ddpbatch("wait", "runs/killed"); o.code != 4 {
		t.Errorf("wait: %v", o)
	}
}

// TestRestartInsideTheAllocation checks that a failed attempt restarts in the same allocation and
// resumes.
func TestRestartInsideTheAllocation(t *testing.T) {
	s := newSite(t, cluster.Options{})
	s.write("job.toml", fmt.Sprintf(fashion, "again", 2, 2, 2, 48)+"[restart]\nmax_without_progress = 1\n")
	whole := s.submit("job.toml", "--run-dir", "runs/whole")
	s.completed(whole)
	id := s.submit("job.toml")
	s.waitForCheckpoint("again")
	resume := s.hold("again")
	if o := finish(t, s.OnNode(t.Context(), "n1", "pkill", "-KILL", "--newest", "-f", "ddpbatch run")); o.code != 0 {
		t.Fatal(o)
	}
	resume()
	s.completed(id)
	mustContain(t, s.log("again", id), "was lost at step", "starting again (1 of 1 without progress)", "resuming after step")
	if got, want := weights(t, s.run("again")), weights(t, s.run("whole")); got != want {
		t.Errorf("other weights:\n%s\n%s", got, want)
	}
}

// checkOwnerOnly checks that only the owner has access to a run directory and its contents.
func checkOwnerOnly(t *testing.T, run string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(run, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		want := os.FileMode(0o600)
		if e.IsDir() {
			want = 0o700
		} else {
			files++
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s: %v, want mode %v", path, info.Mode(), want)
		}
		return nil
	})
	if err != nil || files < 10 {
		t.Errorf("%d files in %s, %v", files, run, err)
	}
}
