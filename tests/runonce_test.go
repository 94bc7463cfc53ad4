package tests

import (
	"os"
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

// TestRunOnce checks that a program with run = "once" runs on the first node only, as in a batch
// script, and can start processes on all nodes with srun. A restart ends the steps of the attempt
// before it, and a stop request reaches all processes.
func TestRunOnce(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 2, GPUs: -1})
	s.write("once.sh", onceScript)
	s.write("job.toml", onceJob)
	if o := s.ddpbatch("submit", "job.toml", "--test-only"); o.code != 0 {
		t.Fatal(o)
	}
	id := s.submit("job.toml")
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
