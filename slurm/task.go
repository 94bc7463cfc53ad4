package slurm

import "fmt"

// Task is one task of an srun step: a rank's place in the job.
type Task struct {
	JobID        string
	StepID       string
	ArrayJobID   string // of the job array that this job is an element of; empty for any other
	ArrayTask    string // index of the element; empty outside arrays
	RestartCount int    // how often Slurm has requeued the job; 0 in its first run

	Rank           int // of this task in the step, 0 to WorldSize-1
	WorldSize      int // tasks in the step
	LocalRank      int // of this task on its node
	LocalWorldSize int // tasks on this task's node
	NodeRank       int // of this task's node in the step

	Hosts        []string // the step's nodes in the order of their numbers; rank 0 may be on any of them
	TasksPerNode []int    // tasks on each of Hosts
	Host         string   // this task's node, Hosts[NodeRank]
}

// TaskFromEnv reads a task from the variables that srun sets for each process.
//
// Only variables that belong to the step are used, as those of the job keep
// describing the whole allocation in a smaller step (srun(1), "OUTPUT
// ENVIRONMENT VARIABLES"). They must agree with each other and with the node
// that the process runs on; variables that leaked in from another step do not,
// and are refused by naming the two facts that disagree. Nothing is computed
// from the rank: with --distribution=cyclic or arbitrary a rank says nothing
// about its node. In a step over several components of a heterogeneous job the
// step's variables count over all of them, and so does the task.
//
// In a batch script, where there is no step but where Slurm sets rank 0 anyway,
// the error is a [*NoStepError].
func TaskFromEnv(lookup func(string) (string, bool)) (Task, error) {
	if _, ok := lookup("SLURM_STEP_NUM_TASKS"); !ok {
		job, _ := lookup("SLURM_JOB_ID")
		return Task{}, &NoStepError{JobID: job}
	}
	v := variables{lookup: lookup}
	t := Task{
		JobID:        v.id("SLURM_JOB_ID"),
		StepID:       v.id("SLURM_STEP_ID"),
		RestartCount: v.numberOr("SLURM_RESTART_COUNT", 0),
		Rank:         v.number("SLURM_PROCID"),
		WorldSize:    v.number("SLURM_STEP_NUM_TASKS"),
		LocalRank:    v.number("SLURM_LOCALID"),
		NodeRank:     v.number("SLURM_NODEID"),
		Hosts:        v.hosts("SLURM_STEP_NODELIST"),
	}
	t.ArrayJobID, t.ArrayTask = v.arrayTask()
	layout := v.text("SLURM_STEP_TASKS_PER_NODE")
	node := v.text("SLURMD_NODENAME")
	if v.err != nil {
		return Task{}, fmt.Errorf("reading the Slurm step: %w", v.err)
	}
	var err error
	if t.TasksPerNode, err = ParseLayout(layout); err != nil {
		return Task{}, fmt.Errorf("reading the Slurm step: SLURM_STEP_TASKS_PER_NODE: %w", err)
	}
	if parts, _ := v.components(); len(parts) > 0 && v.err == nil {
		orderByComponents(parts, t.Hosts, t.TasksPerNode)
	}
	if err := t.check(node); err != nil {
		return Task{}, err
	}
	if err := t.checkRanksHere(&v); err != nil {
		return Task{}, err
	}
	if err := checkInsideJob(t.Hosts, lookup); err != nil {
		return Task{}, err
	}
	t.Host = t.Hosts[t.NodeRank]
	t.LocalWorldSize = t.TasksPerNode[t.NodeRank]
	return t, nil
}

// check compares the facts with each other and with the name of the node on
// which the process runs.
func (t Task) check(node string) error {
	sum := 0
	for _, n := range t.TasksPerNode {
		sum += n
	}
	switch {
	case len(t.TasksPerNode) != len(t.Hosts):
		return disagree("SLURM_STEP_TASKS_PER_NODE has %d nodes, but SLURM_STEP_NODELIST has %d", len(t.TasksPerNode), len(t.Hosts))
	case sum != t.WorldSize:
		return disagree("SLURM_STEP_TASKS_PER_NODE adds up to %d tasks, but SLURM_STEP_NUM_TASKS is %d", sum, t.WorldSize)
	case t.Rank >= t.WorldSize:
		return disagree("SLURM_PROCID is %d, but SLURM_STEP_NUM_TASKS is %d", t.Rank, t.WorldSize)
	case t.NodeRank >= len(t.Hosts):
		return disagree("SLURM_NODEID is %d, but SLURM_STEP_NODELIST has %d nodes", t.NodeRank, len(t.Hosts))
	case t.LocalRank >= t.TasksPerNode[t.NodeRank]:
		return disagree("SLURM_LOCALID is %d, but SLURM_STEP_TASKS_PER_NODE has %d tasks on node %d", t.LocalRank, t.TasksPerNode[t.NodeRank], t.NodeRank)
	case node != t.Hosts[t.NodeRank]:
		return disagree("SLURMD_NODENAME is %q, but node %d of SLURM_STEP_NODELIST is %q", node, t.NodeRank, t.Hosts[t.NodeRank])
	}
	return nil
}

// checkRanksHere compares the task with the ranks of its node, which Slurm sets
// anew for every process: in a batch script too, where they are "0". They are the
// only sign of a leak from a step on the same node. Programs that are said to
// trip over the variable (srun(1)) may have been started without it.
func (t Task) checkRanksHere(v *variables) error {
	ranks, ok := v.ranksHere()
	here := t.TasksPerNode[t.NodeRank]
	switch {
	case v.err != nil:
		return fmt.Errorf("reading the Slurm step: %w", v.err)
	case !ok:
		return nil
	case len(ranks) != here:
		return disagree("SLURM_GTIDS lists %d ranks on this node, but SLURM_STEP_TASKS_PER_NODE has %d tasks on it", len(ranks), here)
	case ranks[t.LocalRank] != t.Rank:
		return disagree("SLURM_GTIDS has rank %d at place %d, but SLURM_PROCID is %d", ranks[t.LocalRank], t.LocalRank, t.Rank)
	}
	return nil
}

// checkInsideJob refuses a step on nodes that the job does not have: the only
// sign of a leak where the first nodes of both jobs happen to be the same. A
// heterogeneous job has the nodes of all its components, of which the plain
// variable may name the first one's only.
func checkInsideJob(step []string, lookup func(string) (string, bool)) error {
	v := variables{lookup: lookup}
	if _, ok := lookup("SLURM_JOB_NODELIST"); !ok {
		return nil
	}
	nodes, source := v.hosts("SLURM_JOB_NODELIST"), "SLURM_JOB_NODELIST does not"
	if parts, size := v.components(); len(parts) > 0 {
		nodes = append(nodes, mergeNodes(parts)...)
		source = fmt.Sprintf("none of the %d components of %s does", len(parts), size)
	}
	if v.err != nil {
		return fmt.Errorf("reading the Slurm job: %w", v.err)
	}
	job := setOf(nodes)
	for _, host := range step {
		if !job[host] {
			return disagree("SLURM_STEP_NODELIST holds %q, but %s", host, source)
		}
	}
	return nil
}

// disagreement is two facts about a step or an allocation that cannot both be
// true.
type disagreement struct{ of, facts string }

func disagree(format string, args ...any) error {
	return disagreement{"step", fmt.Sprintf(format, args...)}
}

func (d disagreement) Error() string { return "the Slurm " + d.of + " contradicts itself: " + d.facts }

// Hint says where such variables come from.
func (d disagreement) Hint() string {
	return "variables of another step have leaked in: submit from a shell outside the step, or unset SLURM_* before sbatch"
}

// NoStepError says that a rank was started without srun. In a batch script Slurm
// sets SLURM_PROCID=0 all the same, so a program that trusts it takes itself for
// rank 0 and waits for ranks that nobody starts.
type NoStepError struct {
	JobID string // empty outside any Slurm job
}

func (e *NoStepError) Error() string {
	if e.JobID == "" {
		return "not in a Slurm step: SLURM_STEP_NUM_TASKS is not set"
	}
	return fmt.Sprintf("not in a Slurm step: job %s has started this process without srun, so there is no rank", e.JobID)
}

// Hint says how to start a rank.
func (e *NoStepError) Hint() string {
	if e.JobID == "" {
		return "start the ranks with `ddpbatch launch` (here) or `ddpbatch submit` (on a cluster)"
	}
	return "write `srun ddpbatch run ...` in the batch script, or `ddpbatch launch`, which calls srun itself"
}
