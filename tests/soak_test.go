package tests

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/tests/cluster"
	"github.com/ddpbatch/ddpbatch/tests/program"
)

var (
	soakFaults = flag.Int("faults", 20, "how many faults the soak test has a training on the cluster suffer")
	soakSeed   = flag.Uint64("seed", 1, "of the soak test's schedule")
)

// soaked is [program.Small] with one rank on each of two nodes.
const soaked = `name = "soak"
[slurm]
nodes = 2
tasks_per_node = 1
time = "12:00:00"
[network]
heartbeat_timeout = "3s"
[restart]
max_without_progress = 3
` + program.Small

// soaking is that training, with its current job.
type soaking struct {
	site
	id     string
	random *rand.Rand
}

// calamities lists the faults that the training must survive, automatically or after a new
// submission.
var calamities = []struct {
	name   string
	strike func(s *soaking)
}{
	{"a rank is killed", func(s *soaking) { s.signal(syscall.SIGKILL) }},
	{"a rank crashes", func(s *soaking) { s.signal(syscall.SIGABRT) }},
	{"a rank is frozen", func(s *soaking) { s.signal(syscall.SIGSTOP) }},
	{"the job is suspended for a while", func(s *soaking) {
		s.slurm("scontrol", "suspend", s.id)
		time.Sleep(1500 * time.Millisecond)
		s.slurm("scontrol", "resume", s.id)
	}},
	{"a link is down for a moment", func(s *soaking) {
		node := []string{"n1", "n2"}[s.random.IntN(2)]
		if err := s.LinkDown(node, "hsn0"); err != nil {
			s.t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := s.LinkUp(node, "hsn0"); err != nil {
			s.t.Fatal(err)
		}
	}},
	{"slurmctld is started again", func(s *soaking) {
		if err := s.RestartController(s.t.Context(), time.Second); err != nil {
			s.t.Fatal(err)
		}
	}},
	{"the launcher is killed, and the job submitted again", func(s *soaking) {
		for _, p := range processesWith(s.t, "ddpbatch launch --run-dir "+s.run("soak")) {
			pid, _ := strconv.Atoi(p)
			_ = syscall.Kill(pid, syscall.SIGKILL) // the batch script may already have exited
		}
		s.ends(s.id, "FAILED", "CANCELLED", "NODE_FAIL", "COMPLETED")
		s.id = s.submit("job.toml")
	}},
	{"the job is cancelled, and submitted again", func(s *soaking) {
		if o := s.ddpbatch("cancel", "runs/soak"); o.code != 0 {
			s.t.Fatal(o)
		}
		s.ends(s.id, "CANCELLED", "COMPLETED", "FAILED")
		s.id = s.submit("job.toml")
	}},
}

func (s *soaking) slurm(argv ...string) {
	s.t.Helper()
	if o := finish(s.t, s.Command(s.t.Context(), argv...)); o.code != 0 {
		s.t.Fatal(argv, o)
	}
}

// signal sends a signal to a random rank.
func (s *soaking) signal(sig syscall.Signal) {
	s.t.Helper()
	var ranks []int
	for _, p := range processesWith(s.t, "ddpbatch run --run-dir "+s.run("soak")) {
		if exe, _ := os.Readlink("/proc/" + p + "/exe"); exe == binary {
			pid, _ := strconv.Atoi(p)
			ranks = append(ranks, pid)
		}
	}
	if len(ranks) != 2 {
		s.t.Fatalf("%d ranks", len(ranks))
	}
	if err := syscall.Kill(ranks[s.random.IntN(2)], sig); err != nil {
		s.t.Fatal(err)
	}
}

// newest returns the step of the newest checkpoint.
func (s *soaking) newest() int {
	found, _ := filepath.Glob(filepath.Join(s.run("soak"), "checkpoints", "step-*"))
	step := 0
	for _, f := range found {
		n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(f), "step-"))
		if err == nil {
			step = max(step, n)
		}
	}
	return step
}

// TestSoak injects faults into a run on the cluster, in a random order from the seed. Each
// fault occurs once before any fault repeats. The test checks that the weights are equal to those
// of an undisturbed run, and that each step has metrics exactly once.
func TestSoak(t *testing.T) {
	const endless, stepsPerEpoch = 1000000, program.SmallSteps
	s := &soaking{site: newSite(t, cluster.Options{Nodes: 2}), random: rand.New(rand.NewPCG(*soakSeed, 0))}
	s.write("job.toml", fmt.Sprintf(soaked, endless))
	s.id = s.submit("job.toml")
	further := func(name string) {
		from := s.newest()
		waitUntil(t, "two checkpoints after "+name, func() bool { return s.newest() >= from+100 })
	}
	further("the start")
	var order []int
	for i := range *soakFaults {
		if len(order) == 0 {
			order = s.random.Perm(len(calamities))
		}
		c := calamities[order[0]]
		order = order[1:]
		step := s.newest()
		c.strike(s)
		further(c.name)
		t.Logf("fault %d after step %d: %s", i+1, step, c.name)
		time.Sleep(time.Duration(s.random.IntN(100)) * time.Millisecond) // at any time between two checkpoints
	}
	if o := s.ddpbatch("cancel", "runs/soak"); o.code != 0 {
		t.Fatal(o)
	}
	s.ends(s.id, "CANCELLED", "COMPLETED", "FAILED")
	epochs := s.newest()/stepsPerEpoch + 2
	s.write("job.toml", fmt.Sprintf(soaked, epochs))
	s.completed(s.submit("job.toml"))
	s.completed(s.submit("job.toml", "--run-dir", "runs/whole"))
	if got, want := weights(t, s.run("soak")), weights(t, s.run("whole")); got != want {
		t.Errorf("after %d epochs:\n%s\nundisturbed:\n%s", epochs, got, want)
	}
	var steps, want []int
	for _, f := range program.Figures(t, s.run("soak")) {
		if f.Kind == "train" {
			steps = append(steps, f.Step)
		}
	}
	for step := 1; step <= epochs*stepsPerEpoch; step++ {
		if step%10 == 0 || step%stepsPerEpoch == 0 {
			want = append(want, step)
		}
	}
	if !slices.Equal(steps, want) {
		t.Errorf("figures of steps %v, want %v", steps, want)
	}
}
