package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

// onceScript starts its own processes. Its first attempt fails and leaves a step behind. The second
// attempt waits until that step has ended, and then runs until it is asked to stop.
const onceScript = `echo "once on $(hostname): rank=${RANK-none} world=${WORLD_SIZE-none} step=${SLURM_STEP_ID-none} tasks=$SLURM_NTASKS nodes=$DDPBATCH_NODES master=$MASTER_ADDR interface=${NCCL_SOCKET_IFNAME-none}"
sed 's/^/hostfile: /' "$DDPBATCH_HOSTFILE"
echo "argument $(cat "$1" | wc -l)"
steps() { squeue --noheader --steps --jobs="$SLURM_JOB_ID" --format=%i | grep -c '\.[0-9]'; }
if [ "$DDPBATCH_ATTEMPT" = 1 ]; then
    srun sh -c 'echo "left on $SLURMD_NODENAME"; touch "started.$SLURM_PROCID"; exec sleep 1000' &
    until [ -e started.0 ] && [ -e started.1 ] && [ -e started.2 ] && [ -e started.3 ]; do sleep 0.2; done
    exit 9
fi
while [ "$(steps)" != 0 ]; do sleep 0.5; done
srun sh -c 'trap "echo task \$SLURM_PROCID caught USR1; exit 3" USR1
    echo "task $SLURM_PROCID of $SLURM_NTASKS on $SLURMD_NODENAME: rank=${RANK-none} torchelastic=${TORCHELASTIC_RUN_ID-none}"
    while :; do sleep 0.1; done'
`

// onceJob is a job for onceScript.
const onceJob = `name = "once"
[slurm]
nodes = 2
tasks_per_node = 2
time = "00:10:00"
signal_before_end = "60s"
[restart]
max_without_progress = 1
[command]
run = "once"
argv = ["sh", "once.sh", "{hostfile}"]
`

// TestRunOnceAndChain checks programs that run once, chains, layouts, and components, on one cluster.
func TestRunOnceAndChain(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 2})
	for name, f := range map[string]func(*testing.T, site){"once": runOnce, "chain": runChain, "sweep": runSweepChain, "shared": runShared, "components": runComponents} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, s)
		})
	}
}

// runOnce checks that a program with run = "once" runs on the first node only, as in a batch
// script, and can start processes on all nodes with srun. A restart ends the steps of the attempt
// before it, and a stop request reaches all processes.
func runOnce(t *testing.T, s site) {
	s.t = t
	s.write("once.sh", onceScript)
	s.write("job.toml", onceJob)
	id := s.testAndSubmit("job.toml")
	waitUntil(t, "the tasks of the second attempt", func() bool {
		b, _ := os.ReadFile(s.run("once") + "/slurm-" + id + ".out")
		return strings.Count(string(b), " of 4 on n") == 4
	})
	if o := finish(t, s.Command(t.Context(), "scancel", "--batch", "--signal=USR1", id)); o.code != 0 {
		t.Fatal(o)
	}
	s.ends(id, "COMPLETED", "FAILED")
	log := s.log("once", id)
	mustContain(t, log, "1 process on n1, with 2 tasks per node",
		"once on n1: rank=none world=none step=none tasks=4 nodes=n1,n2 master=n1 interface=none",
		"hostfile: n1 slots=2\nhostfile: n2 slots=2\nargument 2\n", "left on n1", "left on n2", "sh ended with exit code 9; starting again")
	for _, task := range []string{"task 0 of 4 on n1: rank=none torchelastic=none", "task 3 of 4 on n2: rank=none torchelastic=none",
		"task 0 caught USR1", "task 1 caught USR1", "task 2 caught USR1", "task 3 caught USR1"} {
		if n := strings.Count(log, task); n != 1 {
			t.Errorf("%q occurs %d times in\n%s", task, n, log)
		}
	}
	if o := s.ddpbatch("wait", "runs/once"); o.code != 3 {
		t.Errorf("wait: %v", o)
	}
	if strings.Contains(log, "once on n2") {
		t.Errorf("the program ran on the second node:\n%s", log)
	}
}

// runShared checks that ranks share a GPU of their node.
func runShared(t *testing.T, s site) {
	s.t = t
	s.write("shared.toml", `name = "shared"
[slurm]
nodes = 2
tasks_per_node = 2
gpus_per_node = 1
share_gpus = true
time = "00:10:00"
[command]
argv = ["sh", "-c", "echo rank $RANK on $SLURMD_NODENAME sees $CUDA_VISIBLE_DEVICES"]
`)
	id := s.testAndSubmit("shared.toml")
	s.completed(id)
	log := s.log("shared", id)
	for _, rank := range []string{"0 on n1", "1 on n1", "2 on n2", "3 on n2"} {
		if !regexp.MustCompile("rank " + rank + ` sees [01]\b`).MatchString(log) {
			t.Errorf("rank %s does not see one GPU in\n%s", rank, log)
		}
	}
	if strings.Contains(log, "warning") {
		t.Errorf("ranks that share a GPU cause a warning:\n%s", log)
	}
}

// chainScript needs two jobs: the first is stopped, and the second finishes.
const chainScript = `echo "attempt $DDPBATCH_ATTEMPT in job $SLURM_JOB_ID"
[ "$DDPBATCH_ATTEMPT" = 2 ] && exit 0
trap 'exit 3' USR1
while :; do sleep 0.2; done
`

// chainJob is a job for a chain.
const chainJob = `name = %q
[slurm]
time = "00:10:00"
signal_before_end = "60s"
[command]
argv = ["sh", %q]
`

// runChain checks a chain of three jobs on a cluster: a job that is stopped is continued by the
// next one, the jobs after the end of the training succeed without a start of the program, a
// failure ends the chain, and cancel cancels all of its jobs.
func runChain(t *testing.T, s site) {
	s.t = t
	submit := func(name, program string) []string {
		t.Helper()
		s.write(name+".sh", program)
		s.write(name+".toml", fmt.Sprintf(chainJob, name, name+".sh"))
		o := s.ddpbatch("submit", "--json", "--chain", "3", name+".toml")
		var got struct {
			JobID string   `json:"job_id"`
			Chain []string `json:"chain"`
		}
		if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || len(got.Chain) != 2 {
			t.Fatalf("%v, %v", o, err)
		}
		return append([]string{got.JobID}, got.Chain...)
	}
	started := func(name, id string) {
		t.Helper()
		waitUntil(t, "the program", func() bool {
			b, _ := os.ReadFile(s.run(name) + "/slurm-" + id + ".out")
			return strings.Contains(string(b), "in job "+id)
		})
	}
	ids := submit("long", chainScript)
	started("long", ids[0])
	status := s.ddpbatch("status", "runs/long")
	mustContain(t, status.stdout, "job         "+ids[0]+", running", "chain       2 jobs to continue the run: "+ids[1]+" and "+ids[2])
	if o := s.ddpbatch("submit", "long.toml"); o.code == 0 || !strings.Contains(o.stderr, "is in use by job "+ids[0]) {
		t.Errorf("submitted twice: %v", o)
	}
	if o := finish(t, s.Command(t.Context(), "scancel", "--batch", "--signal=USR1", ids[0])); o.code != 0 {
		t.Fatal(o)
	}
	if o := s.ddpbatch("wait", "runs/long"); o.code != 0 {
		t.Errorf("wait: %v", o)
	}
	s.ends(ids[0], "FAILED") // exit code 3
	s.completed(ids[1])
	s.completed(ids[2])
	mustContain(t, s.log("long", ids[1]), "continuing the run after job "+ids[0], "attempt 2 in job "+ids[1])
	log := s.log("long", ids[2])
	mustContain(t, log, "nothing to do: job "+ids[1]+" has finished the run")
	if strings.Contains(log, "attempt") {
		t.Errorf("the last job of the chain ran the program:\n%s", log)
	}
	status = s.ddpbatch("status", "runs/long")
	mustContain(t, status.stdout, "phase       done", "job         "+ids[1])

	ids = submit("failing", "exit 7")
	for _, id := range ids {
		s.ends(id, "FAILED")
	}
	for _, id := range ids[1:] {
		mustContain(t, s.log("failing", id), "the chain ends: job "+ids[0]+" failed with exit code 7")
	}
	if o := s.ddpbatch("wait", "runs/failing"); o.code != 7 {
		t.Errorf("wait for the failed chain: %v", o)
	}

	ids = submit("canceled", chainScript)
	started("canceled", ids[0])
	if o := s.ddpbatch("cancel", "runs/canceled"); o.code != 0 || !strings.Contains(o.stdout, "cancel the chained jobs "+ids[1]+", "+ids[2]) {
		t.Errorf("cancel: %v", o)
	}
	for _, id := range ids {
		s.ends(id, "CANCELLED")
	}
}

// sweepChainJob is a sweep for a chain: trial 0 needs one job, and trial 1 needs two.
const sweepChainJob = `name = "sweepchain"
[slurm]
time = "00:10:00"
signal_before_end = "60s"
[sweep]
array = "0-1"
[command]
argv = ["sh", "sweepchain.sh"]
`

const sweepChainScript = `echo "attempt $DDPBATCH_ATTEMPT of trial $SLURM_ARRAY_TASK_ID"
[ "$SLURM_ARRAY_TASK_ID$DDPBATCH_ATTEMPT" = 11 ] || exit 0
trap 'exit 3' USR1
while :; do sleep 0.2; done
`

// runSweepChain checks the chain of a sweep on a cluster: the next job array continues the trials
// that were stopped, and ends immediately for trials that have finished. Cancel cancels all arrays.
func runSweepChain(t *testing.T, s site) {
	s.t = t
	s.write("sweepchain.sh", sweepChainScript)
	s.write("sweepchain.toml", sweepChainJob)
	submit := func(args ...string) (ids []string) {
		t.Helper()
		o := s.ddpbatch(append([]string{"submit", "--json", "--chain", "3", "sweepchain.toml"}, args...)...)
		var got struct {
			JobID string   `json:"job_id"`
			Chain []string `json:"chain"`
		}
		if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || len(got.Chain) != 2 {
			t.Fatalf("%v, %v", o, err)
		}
		return append([]string{got.JobID}, got.Chain...)
	}
	log := func(run, id string, trial int) string {
		b, _ := os.ReadFile(fmt.Sprintf("%s/elements/%d/slurm-%s_%d.out", s.run(run), trial, id, trial))
		return string(b)
	}
	started := func(run, id string) {
		t.Helper()
		waitUntil(t, "trial 1", func() bool { return strings.Contains(log(run, id, 1), "attempt 1 of trial 1") })
	}
	ids := submit()
	started("sweepchain", ids[0])
	mustContain(t, s.ddpbatch("status", "runs/sweepchain/elements/1").stdout, "chain       2 jobs to continue the run: "+ids[1]+"_1 and "+ids[2]+"_1")
	if o := s.ddpbatch("submit", "sweepchain.toml"); o.code == 0 || !strings.Contains(o.stderr, "still queued or running") {
		t.Errorf("submitted twice: %v", o)
	}
	if o := finish(t, s.Command(t.Context(), "scancel", "--batch", "--signal=USR1", ids[0]+"_1")); o.code != 0 {
		t.Fatal(o)
	}
	if o := s.ddpbatch("wait", "runs/sweepchain"); o.code != 0 {
		t.Errorf("wait: %v", o)
	}
	mustContain(t, log("sweepchain", ids[1], 0), "nothing to do: job "+ids[0]+"_0 has finished the run")
	mustContain(t, log("sweepchain", ids[1], 1), "continuing the run after job "+ids[0]+"_1", "attempt 2 of trial 1")
	mustContain(t, log("sweepchain", ids[2], 1), "nothing to do: job "+ids[1]+"_1 has finished the run")
	for _, e := range s.elements("runs/sweepchain") {
		if !e.Finished {
			t.Errorf("got %+v, want a finished trial", e)
		}
	}

	ids = submit("--run-dir", "runs/sweepcancel")
	started("sweepcancel", ids[0])
	if o := s.ddpbatch("cancel", "runs/sweepcancel"); o.code != 0 {
		t.Errorf("cancel: %v", o)
	}
	for _, id := range ids {
		s.ends(id+"_1", "CANCELLED")
	}
	mustContain(t, s.ddpbatch("submit", "--dry-run", "--run-dir", "runs/sweepcancel", "sweepchain.toml").stdout, "--array=0-1")
}
