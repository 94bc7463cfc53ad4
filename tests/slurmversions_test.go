package tests

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

// needsSlurm skips a test if the installed Slurm is older than a version such as "24.05". Versions
// have the same number of digits.
func needsSlurm(t *testing.T, version string) {
	t.Helper()
	if installed := newScontrol(t).version(); installed < version {
		t.Skipf("Slurm %s: %s is required", installed, version)
	}
}

func (s scontrol) version() string {
	s.t.Helper()
	return slurmVersion(s.t, "SLURM_CONF="+s.conf)
}

// twoBlocks is a topology of two blocks with two nodes each.
const twoBlocks = "BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n[3-4]\nBlockSizes=2\n"

// untilGo returns a job that runs until the file go exists, with lines for [slurm].
func untilGo(name, lines string) string {
	return "name = \"" + name + "\"\n[slurm]\ntime = \"00:10:00\"\n" + lines + "\n[command]\nargv = [\"sh\", \"-c\", \"until test -e go; do sleep 0.2; done\"]\n"
}

// shown returns the output of scontrol show job.
func (s site) shown(id string) string {
	s.t.Helper()
	return finish(s.t, s.Command(s.t.Context(), "scontrol", "show", "job", id)).stdout
}

// running waits until a job runs, and returns its nodes.
func (s site) running(id string) string {
	s.t.Helper()
	waitUntil(s.t, "job "+id+" to run", func() bool { return strings.Contains(s.shown(id), "JobState=RUNNING") })
	return s.nodes(id)
}

// nodes returns the nodes of a job that has started.
func (s site) nodes(id string) string {
	s.t.Helper()
	nodes := regexp.MustCompile(`\n +NodeList=(\S+)`).FindStringSubmatch(s.shown(id))
	if nodes == nil {
		s.t.Fatalf("job %s has no nodes:\n%s", id, s.shown(id))
	}
	return nodes[1]
}

// TestBlockTopology checks that slurm.segment and --exclusive=topo select nodes of a block topology.
func TestBlockTopology(t *testing.T) {
	needsSlurm(t, "24.05")
	s := newSite(t, cluster.Options{Nodes: 4, GPUs: -1, Topology: twoBlocks, SlurmConf: []string{"TopologyPlugin=topology/block"}})
	s.write("whole.toml", untilGo("whole", `nodelist = "n1"`+"\noptions = [\"--exclusive=topo\"]"))
	s.write("single.toml", untilGo("single", ""))
	whole := s.submit("whole.toml")
	if nodes := s.running(whole); nodes != "n1" {
		t.Errorf("job on n1: got %s", nodes)
	}
	mustContain(t, s.shown(whole), "OverSubscribe=TOPO")
	// The first block belongs to the first job, although that job uses only one CPU
	// of it.
	single := s.submit("single.toml")
	if nodes := s.running(single); nodes != "n3" && nodes != "n4" {
		t.Errorf("next job: got %s, want a node of the other block", nodes)
	}
	if err := os.WriteFile(filepath.Join(s.home, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.completed(whole)
	s.completed(single)

	// Without n1, two nodes of one block are n3 and n4. Without n1 and n3, segments of one node
	// are left in both blocks.
	if err := os.Remove(filepath.Join(s.home, "go")); err != nil {
		t.Fatal(err)
	}
	s.write("segment.toml", untilGo("segment", "nodes = 2\nsegment = 2\nexclude = \"n1\""))
	s.write("spread.toml", untilGo("spread", "nodes = 2\nsegment = 1\nexclude = \"n[1,3]\""))
	segment := s.testAndSubmit("segment.toml")
	if nodes := s.running(segment); nodes != "n[3-4]" {
		t.Errorf("segment of two nodes: got %s", nodes)
	}
	spread := s.submit("spread.toml")
	if nodes := s.running(spread); nodes != "n[2,4]" {
		t.Errorf("segments of one node: got %s", nodes)
	}
	if err := os.WriteFile(filepath.Join(s.home, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.completed(segment)
	s.completed(spread)
}

// TestCoresOfSteps checks how many CPUs srun uses for a task in a job with two CPUs per task: one in
// Slurm 22.05, and two in 24.11. Therefore, ddpbatch passes -c to srun.
func TestCoresOfSteps(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 1, GPUs: -1})
	const step = "srun --exact sh -c 'scontrol show step $SLURM_JOB_ID.$SLURM_STEP_ID'"
	for options, want := range map[string]string{"": "CPUs=1 Tasks=1", "-c 2": "CPUs=2 Tasks=1"} {
		if options == "" && newScontrol(t).version() >= "23.11" {
			want = "CPUs=2 Tasks=1"
		}
		id := s.batch("--ntasks=1", "--cpus-per-task=2", "--output="+filepath.Join(s.home, "%j.out"), "--wrap", strings.Replace(step, "srun", "srun "+options, 1))
		s.completed(id)
		mustContain(t, s.file(id+".out"), want)
	}
}

// TestTasksOfJobs checks for how many tasks Slurm plans a job with --ntasks and --ntasks-per-node that
// contradict each other. Therefore, ddpbatch passes consistent numbers.
func TestTasksOfJobs(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 2, GPUs: -1})
	want := "2(x2)\n"
	if newScontrol(t).version() >= "24.05" {
		want = "2,1\n"
	}
	id := s.batch("--nodes=2", "--ntasks=3", "--ntasks-per-node=2", "--output="+filepath.Join(s.home, "tasks"), "--wrap", "echo \"$SLURM_TASKS_PER_NODE\"")
	s.completed(id)
	if got := s.file("tasks"); got != want {
		t.Errorf("got tasks per node %q, want %q", got, want)
	}
}

// batch submits a batch job without ddpbatch and returns its ID.
func (s site) batch(args ...string) string {
	s.t.Helper()
	o := finish(s.t, s.Command(s.t.Context(), append([]string{"sbatch", "--parsable"}, args...)...))
	if o.code != 0 {
		s.t.Fatal(o)
	}
	return strings.TrimSpace(o.stdout)
}

// TestRequeueExitCodes checks the exit codes and messages of scontrol requeue that package slurm
// relies on: 1 with a message is a rejection, which is final unless the job was requeued before.
func TestRequeueExitCodes(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 1, GPUs: -1})
	wrapped := func(option string) string { return s.batch(option, "--output=/dev/null", "--wrap", "sleep 600") }
	check := func(name, id string, code int, message string) {
		o := finish(t, s.Command(t.Context(), "scontrol", "requeue", id))
		if o.code != code || o.stdout != "" || !strings.Contains(o.stderr, message) || message == "" && o.stderr != "" {
			t.Errorf("%s: got %v, want exit code %d and %q", name, o, code, message)
		}
	}
	check("queued job", wrapped("--hold"), 1, "Job is pending execution")
	check("unknown job", "99", 1, "Invalid job id specified")
	fixed := wrapped("--no-requeue")
	s.running(fixed)
	check("job with --no-requeue", fixed, 1, "Requested operation is presently disabled")
	usual := wrapped("--requeue")
	s.running(usual)
	check("running job", usual, 0, "")
	check("requeued job", usual, 1, "Job is pending execution")
	mustContain(t, s.shown(usual), "Restarts=1 ")
}

// TestSelectLinear checks that clusters with select/linear reject GPUs per task, and accept GPUs per
// node, as ddpbatch requests them by default.
func TestSelectLinear(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 1, SlurmConf: []string{"SelectType=select/linear", "SelectTypeParameters=CR_Memory"}})
	for option, want := range map[string]string{
		"--gpus-per-task=1": "Requested GRES option unsupported by configured SelectType plugin",
		"--gres=gpu:1":      "to start at",
	} {
		if o := finish(t, s.Command(t.Context(), "sbatch", "--test-only", "--ntasks=1", option, "--wrap", "true")); !strings.Contains(o.stderr, want) {
			t.Errorf("%s: got %v, want %q", option, o, want)
		}
	}
}
