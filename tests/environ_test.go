package tests

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

// A scenario is a batch script that starts processes in one of the ways that Slurm supports. In the
// script, "$RECORD NAME" records the environment of its own process.
type scenario struct {
	name     string
	args     []string // for sbatch
	script   string
	shots    []shot
	nodes    string // of the job in Slurm's order; components are concatenated
	parts    int    // number of components of a heterogeneous job
	element  string // index in the job array
	restarts int
}

// A shot is the expected result of one $RECORD.
type shot struct {
	name  string
	hosts string // by rank, such as "n1 n1 n2"; for a process without a rank, its host
	// refused reports whether an error explains why the process has no rank.
	refused func(error) bool
	// keep lists the ranks whose environment is a fixture: NAME-rankR.env, or NAME.env for a
	// process without a rank.
	keep []int
}

func noStep(err error) bool {
	var e *slurm.NoStepError
	return errors.As(err, &e)
}

func contradiction(err error) bool {
	return err != nil && strings.Contains(err.Error(), "conflicting variables of the Slurm step")
}

// scenarios lists the ways to start processes. Each scenario runs on a cluster of four nodes. It
// names its nodes, so that all runs are equal.
var scenarios = []scenario{
	{
		name: "plain", nodes: "n1 n2", args: []string{"-wn[1-2]", "-N2", "--ntasks-per-node=2", "--gres=gpu:2"},
		script: "$RECORD batch\nsrun $RECORD step\n",
		shots: []shot{
			{name: "batch", hosts: "n1", refused: noStep, keep: []int{0}},
			{name: "step", hosts: "n1 n1 n2 n2", keep: []int{3}},
		},
	},
	{
		name: "layouts", nodes: "n1 n2 n3", args: []string{"-wn[1-3]", "-N3", "--ntasks-per-node=3"},
		script: "srun -N3 -n7 -m block $RECORD uneven\n" +
			"srun -N3 -n7 -m cyclic $RECORD cyclic\n" +
			"printf '%s\\n' n2 n1 n1 n3 >$RECORD.hosts\n" +
			"SLURM_HOSTFILE=$RECORD.hosts srun -n4 -m arbitrary $RECORD arbitrary\n" +
			"srun -N1 -n2 -wn2 $RECORD substep\n",
		shots: []shot{
			{name: "uneven", hosts: "n1 n1 n1 n2 n2 n3 n3", keep: []int{5}},
			{name: "cyclic", hosts: "n1 n2 n3 n1 n2 n3 n1", keep: []int{3}},
			{name: "arbitrary", hosts: "n2 n1 n1 n3", keep: []int{0}},
			{name: "substep", hosts: "n2 n2", keep: []int{1}},
		},
	},
	{
		name: "het", nodes: "n1 n2 n3", parts: 2,
		args:   []string{"-wn1", "-N1", "--ntasks-per-node=2", "--gres=gpu:2", ":", "-wn[2-3]", "-N2", "--ntasks-per-node=1"},
		script: "$RECORD het-batch\nsrun $RECORD het-plain\nsrun --het-group=0,1 $RECORD het-all\nsrun --het-group=1 $RECORD het-group1\n",
		shots: []shot{
			{name: "het-batch", hosts: "n1", refused: noStep, keep: []int{0}},
			{name: "het-plain", hosts: "n1 n1", keep: []int{1}},
			{name: "het-all", hosts: "n1 n1 n2 n3", keep: []int{0, 2}},
			{name: "het-group1", hosts: "n2 n3", keep: []int{1}},
		},
	},
	{
		// The first component has the last node. Slurm sorts the nodes of the step and their tasks
		// per node, but it does not sort the node numbers.
		name: "het-reversed", nodes: "n3 n1 n2", parts: 2, args: []string{"-wn3", "-N1", "-n2", ":", "-wn[1-2]", "-N2", "-n3"},
		script: "$RECORD het-reversed-batch\nsrun --het-group=0,1 $RECORD het-reversed\n",
		shots: []shot{
			{name: "het-reversed-batch", hosts: "n3", refused: noStep, keep: []int{0}},
			{name: "het-reversed", hosts: "n3 n3 n1 n1 n2", keep: []int{0, 2}},
		},
	},
	{
		name: "array", nodes: "n1 n2", element: "3", args: []string{"-wn[1-2]", "-N2", "--ntasks-per-node=2", "--array=1,3,5%1"},
		script: "[ $SLURM_ARRAY_TASK_ID = 3 ] || exit 0\n$RECORD array-batch\nsrun $RECORD array-step\n",
		shots: []shot{
			{name: "array-batch", hosts: "n1", refused: noStep, keep: []int{0}},
			{name: "array-step", hosts: "n1 n1 n2 n2", keep: []int{3}},
		},
	},
	{
		// Variables of the step that ran sbatch are also set in the new batch script. The srun in
		// that script replaces them.
		name: "leak", nodes: "n3", args: []string{"-wn4", "-N1", "-n1"},
		script: "srun -n1 sbatch --job-name=leaked --output=$RECORD.leaked -wn3 -N1 -n2 <<END\n" +
			"#!/bin/sh\n$RECORD leak-batch\nsrun $RECORD leak-step\nEND\n",
		shots: []shot{
			{name: "leak-batch", hosts: "n3", refused: contradiction, keep: []int{0}},
			{name: "leak-step", hosts: "n3 n3", keep: []int{1}},
		},
	},
	{
		// Same as above on one node, so that the host name does not distinguish the steps. Only
		// SLURM_GTIDS, which Slurm sets for the new step, has fewer ranks than the old step.
		name: "leak-same-node", nodes: "n4", args: []string{"-wn4", "-N1", "-n2"},
		script: "srun -n2 sh -c '[ $SLURM_PROCID = 1 ] || exit 0; exec sbatch --job-name=leaked --output=$1.leaked -wn4 -N1 -n2 --wrap=\"$1 leak-same-node\"' sh $RECORD\n",
		shots:  []shot{{name: "leak-same-node", hosts: "n4", refused: contradiction, keep: []int{0}}},
	},
	{
		name: "requeue", nodes: "n4", restarts: 1, args: []string{"-wn4", "-N1", "-n2", "--requeue"},
		// Slurm kills the sleep first. The shell must not continue after it.
		script: "[ -n \"$SLURM_RESTART_COUNT\" ] || { scontrol requeue $SLURM_JOB_ID; exec sleep 600; }\n" +
			"$RECORD requeue-batch\nsrun $RECORD requeue-step\n",
		shots: []shot{
			{name: "requeue-batch", hosts: "n4", refused: noStep, keep: []int{0}},
			{name: "requeue-step", hosts: "n4 n4", keep: []int{1}},
		},
	},
}

// TestEnvironments compares the rank and the allocation that package slurm reads from the
// environment with the processes that Slurm started, for each scenario.
func TestEnvironments(t *testing.T) {
	c := cluster.ForTest(t, cluster.Options{CPUs: 64, GPUs: 2,
		// Only the backfill scheduler starts heterogeneous jobs.
		SlurmConf: []string{"SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1"}})
	record := make(map[string]string)
	ids := make(map[string]string)
	for _, s := range scenarios {
		record[s.name] = recorder(t)
		ids[s.name] = sbatch(t, c, "RECORD="+record[s.name]+"\n"+s.script, append([]string{"--job-name=" + s.name}, s.args...)...)
	}
	startRequeued(t, c, ids["requeue"])
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			shots := make(map[string][]process)
			for _, shot := range s.shots {
				shots[shot.name] = waitForRecordings(t, record[s.name], shot.name, len(strings.Fields(shot.hosts)))
			}
			plain := newNormalizer(shots)
			for _, shot := range s.shots {
				t.Run(shot.name, func(t *testing.T) {
					s.checkJob(t, shots[shot.name], shot, ids[s.name])
					shot.check(t, shots[shot.name], plain)
				})
			}
		})
	}
}

// sbatch submits a script and returns the job ID.
func sbatch(t *testing.T, c *cluster.Cluster, script string, args ...string) string {
	t.Helper()
	cmd := c.Command(t.Context(), append([]string{"sbatch", "--parsable", "--output=" + t.TempDir() + "/%j.out"}, args...)...)
	cmd.Stdin = strings.NewReader("#!/bin/sh\n" + script)
	cmd.Env, _ = slurm.Scrub(cmd.Env)
	o := finish(t, cmd)
	if o.code != 0 {
		t.Fatalf("%v: %v", cmd.Args, o)
	}
	return strings.TrimSpace(o.stdout)
}

// extendTimeLimit gives a requeued job enough time to finish.
func extendTimeLimit(t *testing.T, c *cluster.Cluster, id string) {
	t.Helper()
	setTimeLimit(t, c, id, 10)
}

// setTimeLimit changes the time limit of a job.
func setTimeLimit(t *testing.T, c *cluster.Cluster, id string, minutes int) {
	t.Helper()
	if o := finish(t, c.Command(t.Context(), "scontrol", "update", "JobId="+id, fmt.Sprintf("TimeLimit=%d", minutes))); o.code != 0 {
		t.Fatal(o)
	}
}

// startRequeued starts a requeued job soon, because Slurm otherwise delays it by two minutes. It
// does not start the job immediately: slurmd counts in seconds, and it rejects a job that starts
// within the second of its kill ("job credential revoked").
func startRequeued(t *testing.T, c *cluster.Cluster, id string) {
	t.Helper()
	startRestarted(t, c, id, 1)
}

// startRestarted starts a job that is requeued for the n-th time, like startRequeued.
func startRestarted(t *testing.T, c *cluster.Cluster, id string, n int) {
	t.Helper()
	waitUntil(t, "the job to be requeued", func() bool {
		o := finish(t, c.Command(t.Context(), "scontrol", "show", "job", id))
		return strings.Contains(o.stdout, fmt.Sprintf("Restarts=%d", n)) && strings.Contains(o.stdout, "JobState=PENDING")
	})
	if o := finish(t, c.Command(t.Context(), "scontrol", "update", "JobId="+id, "StartTime=now+2")); o.code != 0 {
		t.Fatal(o)
	}
}

// checkJob compares the allocations that the processes read with the job.
func (s scenario) checkJob(t *testing.T, processes []process, of shot, id string) {
	for _, p := range processes {
		a, ok, err := slurm.AllocationFromEnv(p.lookup)
		if !ok || err != nil {
			t.Errorf("on %s: AllocationFromEnv: %v, %v", p.host, ok, err)
			continue
		}
		if strings.Join(a.Nodes, " ") != s.nodes || len(a.Components) != s.parts || a.RestartCount != s.restarts {
			t.Errorf("on %s: %+v; want nodes %s, %d components and %d restarts", p.host, a, s.nodes, s.parts, s.restarts)
		}
		tasks := len(processes)
		if of.refused != nil {
			tasks = 0
		}
		if a.StepTasks != tasks {
			t.Errorf("on %s: in a step of %d tasks; want %d", p.host, a.StepTasks, tasks)
		}
		arrayID, submitted := "", a.JobID
		if s.element != "" {
			arrayID, submitted = id, a.ArrayJobID
		}
		if a.ArrayTask != s.element || a.ArrayJobID != arrayID || (submitted == id) == strings.HasPrefix(s.name, "leak") {
			t.Errorf("on %s: job %s, element %q of %q; sbatch said %s", p.host, a.JobID, a.ArrayTask, a.ArrayJobID, id)
		}
		if task, err := slurm.TaskFromEnv(p.lookup); err == nil && (task.JobID != a.JobID || task.ArrayJobID != a.ArrayJobID ||
			task.ArrayTask != a.ArrayTask || task.RestartCount != a.RestartCount) {
			t.Errorf("on %s: the task is of another job than the allocation: %+v, %+v", p.host, task, a)
		}
	}
}

// check compares the processes with the expected ones, and the environments of fixtures with the
// recorded ones.
func (s shot) check(t *testing.T, processes []process, plain func(map[string]string) map[string]string) {
	hosts := strings.Fields(s.hosts)
	if s.refused != nil {
		p := processes[0]
		if p.host != s.hosts {
			t.Errorf("ran on %s; want %s", p.host, s.hosts)
		}
		if task, err := slurm.TaskFromEnv(p.lookup); !s.refused(err) {
			t.Errorf("TaskFromEnv: %+v, %v", task, err)
		}
		s.fixture(t, s.name, p, plain)
		return
	}
	count := make(map[string]int)
	for _, h := range hosts {
		count[h]++
	}
	byRank := make(map[int]process)
	places := make(map[string]bool)
	for _, p := range processes {
		task, err := slurm.TaskFromEnv(p.lookup)
		if err != nil {
			t.Errorf("on %s: %v", p.host, err)
			continue
		}
		byRank[task.Rank] = p
		places[fmt.Sprint(p.host, " ", task.LocalRank)] = true
		if task.Rank >= len(hosts) || hosts[task.Rank] != p.host || task.Host != p.host || task.WorldSize != len(hosts) {
			t.Errorf("on %s: rank %d of %d on %s; want the ranks on %s", p.host, task.Rank, task.WorldSize, task.Host, s.hosts)
		}
		if task.LocalWorldSize != count[p.host] || task.LocalRank >= count[p.host] {
			t.Errorf("on %s: local rank %d of %d; want %d on the node", p.host, task.LocalRank, task.LocalWorldSize, count[p.host])
		}
		if got := slices.Sorted(slices.Values(task.Hosts)); !slices.Equal(got, slices.Sorted(maps.Keys(count))) {
			t.Errorf("on %s: hosts %v; want those of %s", p.host, task.Hosts, s.hosts)
		} else if len(task.TasksPerNode) != len(task.Hosts) || task.Hosts[task.NodeRank] != p.host {
			t.Errorf("on %s: node %d of %v with %v tasks", p.host, task.NodeRank, task.Hosts, task.TasksPerNode)
		} else {
			for i, h := range task.Hosts {
				if task.TasksPerNode[i] != count[h] {
					t.Errorf("on %s: %d tasks on %s; want %d", p.host, task.TasksPerNode[i], h, count[h])
				}
			}
		}
	}
	if len(byRank) != len(hosts) || len(places) != len(hosts) {
		t.Errorf("%d ranks in %d places; want %d", len(byRank), len(places), len(hosts))
	}
	for _, rank := range s.keep {
		i := slices.IndexFunc(processes, func(p process) bool { return p.env["SLURM_PROCID"] == strconv.Itoa(rank) })
		s.fixture(t, fmt.Sprintf("%s-rank%d", s.name, rank), processes[i], plain)
	}
}
