package slurm

import (
	"fmt"
	"strconv"
	"strings"
)

// A Task is one task of an srun step. Tasks are the ranks of a run.
type Task struct {
	JobID        string
	StepID       string
	ArrayJobID   string // number of the job array; empty for other jobs
	ArrayTask    string // index of the array task; empty for other jobs
	RestartCount int    // number of requeues of the job

	Rank           int // 0 to WorldSize-1
	WorldSize      int // tasks in the step
	LocalRank      int // 0 to LocalWorldSize-1
	LocalWorldSize int // tasks on this node
	NodeRank       int // index of this node in Hosts

	Hosts        []string // nodes of the step, in Slurm's order; rank 0 may be on any of them
	TasksPerNode []int    // number of tasks on each of Hosts
	Host         string   // Hosts[NodeRank]
}

// TaskFromEnv reads the task of this process from the variables that srun sets.
//
// It uses only variables of the step. Variables of the job describe the whole allocation,
// which may be larger (srun(1), "OUTPUT ENVIRONMENT VARIABLES"). The variables must agree
// with each other and with the node of the process. If variables of a different step have
// leaked, the error names two variables that disagree. TaskFromEnv derives nothing from the
// rank: with --distribution=cyclic or arbitrary, ranks are not in the order of nodes. In a
// step over several components of a heterogeneous job, ranks and nodes are numbered across
// all components.
//
// Without a step, the error is a [*NoStepError]. This includes batch scripts, where Slurm
// sets a rank of 0.
func TaskFromEnv(lookup func(string) (string, bool)) (Task, error) {
	if _, ok := lookup("SLURM_STEP_NUM_TASKS"); !ok {
		job, _ := lookup("SLURM_JOB_ID")
		return Task{}, &NoStepError{JobID: job}
	}
	env := envReader{lookup: lookup}
	t := Task{
		JobID:        env.id("SLURM_JOB_ID"),
		StepID:       env.id("SLURM_STEP_ID"),
		RestartCount: env.optionalCount("SLURM_RESTART_COUNT"),
		Rank:         env.count("SLURM_PROCID"),
		WorldSize:    env.count("SLURM_STEP_NUM_TASKS"),
		LocalRank:    env.count("SLURM_LOCALID"),
		NodeRank:     env.count("SLURM_NODEID"),
		Hosts:        env.hosts("SLURM_STEP_NODELIST"),
	}
	t.ArrayJobID, t.ArrayTask = env.arrayTask()
	t.TasksPerNode = env.tasksPerNode("SLURM_STEP_TASKS_PER_NODE")
	node := env.text("SLURMD_NODENAME")
	if env.err != nil {
		return Task{}, fmt.Errorf("read Slurm step: %w", env.err)
	}
	if components, _ := env.components(); len(components) > 0 && env.err == nil {
		orderByComponents(components, t.Hosts, t.TasksPerNode)
	}
	if err := t.check(node); err != nil {
		return Task{}, err
	}
	if err := t.checkLocalRanks(&env); err != nil {
		return Task{}, err
	}
	if err := checkJobNodes(t.Hosts, lookup); err != nil {
		return Task{}, err
	}
	t.Host = t.Hosts[t.NodeRank]
	t.LocalWorldSize = t.TasksPerNode[t.NodeRank]
	return t, nil
}

// check compares the fields with each other and with the name of the node.
func (t Task) check(node string) error {
	sum := 0
	for _, n := range t.TasksPerNode {
		sum += n
	}
	switch {
	case len(t.TasksPerNode) != len(t.Hosts):
		return stepConflict("SLURM_STEP_TASKS_PER_NODE has %d nodes, but SLURM_STEP_NODELIST has %d", len(t.TasksPerNode), len(t.Hosts))
	case sum != t.WorldSize:
		return stepConflict("SLURM_STEP_TASKS_PER_NODE has %d tasks, but SLURM_STEP_NUM_TASKS is %d", sum, t.WorldSize)
	case t.Rank >= t.WorldSize:
		return stepConflict("SLURM_PROCID is %d, but SLURM_STEP_NUM_TASKS is %d", t.Rank, t.WorldSize)
	case t.NodeRank >= len(t.Hosts):
		return stepConflict("SLURM_NODEID is %d, but SLURM_STEP_NODELIST has %d nodes", t.NodeRank, len(t.Hosts))
	case t.LocalRank >= t.TasksPerNode[t.NodeRank]:
		return stepConflict("SLURM_LOCALID is %d, but SLURM_STEP_TASKS_PER_NODE has %d tasks on node %d", t.LocalRank, t.TasksPerNode[t.NodeRank], t.NodeRank)
	case node != t.Hosts[t.NodeRank]:
		return stepConflict("SLURMD_NODENAME is %q, but node %d of SLURM_STEP_NODELIST is %q", node, t.NodeRank, t.Hosts[t.NodeRank])
	}
	return nil
}

// checkLocalRanks compares the task with SLURM_GTIDS, the ranks of its node. Slurm sets
// this variable for every process; in a batch script it is "0". It is the only sign of
// variables that leaked from a step on the same node. It may be unset, because some
// programs fail if it is set (srun(1)).
func (t Task) checkLocalRanks(env *envReader) error {
	ranks, ok := env.localRanks()
	n := t.TasksPerNode[t.NodeRank]
	switch {
	case env.err != nil:
		return fmt.Errorf("read Slurm step: %w", env.err)
	case !ok:
		return nil
	case len(ranks) != n:
		return stepConflict("SLURM_GTIDS lists %d ranks on this node, but SLURM_STEP_TASKS_PER_NODE has %d tasks on it", len(ranks), n)
	case ranks[t.LocalRank] != t.Rank:
		return stepConflict("SLURM_GTIDS has rank %d at index %d, but SLURM_PROCID is %d", ranks[t.LocalRank], t.LocalRank, t.Rank)
	}
	return nil
}

// checkJobNodes returns an error if a node of the step is not a node of the job. This is
// the only sign of leaked variables if both jobs have the same first nodes. In a
// heterogeneous job, SLURM_JOB_NODELIST may have the nodes of the first component only.
func checkJobNodes(step []string, lookup func(string) (string, bool)) error {
	env := envReader{lookup: lookup}
	if _, ok := lookup("SLURM_JOB_NODELIST"); !ok {
		return nil
	}
	nodes, source := env.hosts("SLURM_JOB_NODELIST"), "SLURM_JOB_NODELIST does not"
	if components, size := env.components(); len(components) > 0 {
		nodes = append(nodes, mergeNodes(components)...)
		source = fmt.Sprintf("none of the %d components of %s does", len(components), size)
	}
	if env.err != nil {
		return fmt.Errorf("read Slurm job: %w", env.err)
	}
	isJobNode := setOf(nodes)
	for _, host := range step {
		if !isJobNode[host] {
			return stepConflict("SLURM_STEP_NODELIST contains %q, but %s", host, source)
		}
	}
	return nil
}

// A conflictError reports two variables of a step or an allocation that disagree.
type conflictError struct{ subject, facts string }

func stepConflict(format string, args ...any) error {
	return conflictError{"step", fmt.Sprintf(format, args...)}
}

func (e conflictError) Error() string {
	return "conflicting variables of the Slurm " + e.subject + ": " + e.facts
}

// Hint returns how to remove leaked variables.
func (e conflictError) Hint() string {
	return "submit from a shell outside of the step, or unset SLURM_* before sbatch: variables of a different step have leaked"
}

// A NoStepError reports a rank that was not started by srun. Slurm sets SLURM_PROCID=0 in
// batch scripts. A program that trusts it runs as rank 0 and waits for ranks that do not
// exist.
type NoStepError struct {
	JobID string // empty outside of Slurm jobs
}

func (e *NoStepError) Error() string {
	if e.JobID == "" {
		return "not in a Slurm step: SLURM_STEP_NUM_TASKS is not set"
	}
	return fmt.Sprintf("not in a Slurm step: job %s started this process without srun", e.JobID)
}

// Hint returns how to start ranks.
func (e *NoStepError) Hint() string {
	if e.JobID == "" {
		return "start the ranks with `ddpbatch launch` on this host, or with `ddpbatch submit` on a cluster"
	}
	return "use `srun ddpbatch run` or `ddpbatch launch` in the batch script"
}

// An envReader reads SLURM_ variables. It stores the first error, so callers check for
// errors once.
type envReader struct {
	lookup func(string) (string, bool)
	err    error
}

func (r *envReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

// text returns a variable that must not be empty.
func (r *envReader) text(name string) string {
	s, ok := r.lookup(name)
	if !ok || s == "" {
		r.fail("%s is not set", name)
	}
	return s
}

// count returns a variable that must be a non-negative integer.
func (r *envReader) count(name string) int {
	s := r.text(name)
	n, err := parseCount(s)
	if err != nil {
		r.fail("%s: %w", name, err)
	}
	return n
}

// optionalCount is like count, but returns 0 if the variable is not set.
func (r *envReader) optionalCount(name string) int {
	if _, ok := r.lookup(name); !ok {
		return 0
	}
	return r.count(name)
}

// id returns the number of a job or step as text. It must consist of digits, because it
// becomes part of file names and arguments.
func (r *envReader) id(name string) string {
	s := r.text(name)
	if !isID(s) {
		r.fail("%s: %q is not a number", name, s)
	}
	return s
}

// hosts returns a variable that must be a node list with at least one node.
func (r *envReader) hosts(name string) []string {
	s := r.text(name)
	hosts, err := ExpandHosts(s)
	switch {
	case err != nil:
		r.fail("%s: %w", name, err)
	case len(hosts) == 0:
		r.fail("%s: %q contains no node", name, s)
	}
	return hosts
}

// tasksPerNode returns a variable that must have the form of SLURM_STEP_TASKS_PER_NODE.
func (r *envReader) tasksPerNode(name string) []int {
	tasks, err := ParseTasksPerNode(r.text(name))
	if err != nil {
		r.fail("%s: %w", name, err)
	}
	return tasks
}

// localRanks returns the ranks of this node by local rank. It returns false if
// SLURM_GTIDS is not set or invalid.
func (r *envReader) localRanks() ([]int, bool) {
	list, ok := r.lookup("SLURM_GTIDS")
	if !ok {
		return nil, false
	}
	var ranks []int
	for part := range strings.SplitSeq(list, ",") {
		rank, err := parseCount(part)
		if err != nil {
			r.fail("SLURM_GTIDS: %w", err)
			return nil, false
		}
		ranks = append(ranks, rank)
	}
	return ranks, true
}

// arrayTask returns the job array and the index of this array task. Both are empty for
// other jobs.
func (r *envReader) arrayTask() (array, task string) {
	_, hasArray := r.lookup("SLURM_ARRAY_JOB_ID")
	_, hasTask := r.lookup("SLURM_ARRAY_TASK_ID")
	switch {
	case !hasArray && !hasTask:
		return "", ""
	case !hasTask:
		r.fail("SLURM_ARRAY_JOB_ID is set, but SLURM_ARRAY_TASK_ID is not")
	case !hasArray:
		r.fail("SLURM_ARRAY_TASK_ID is set, but SLURM_ARRAY_JOB_ID is not")
	}
	return r.id("SLURM_ARRAY_JOB_ID"), r.id("SLURM_ARRAY_TASK_ID")
}

// FoldTasksPerNode returns numbers of tasks in the form that [ParseTasksPerNode] reads.
func FoldTasksPerNode(tasks []int) string {
	var parts []string
	for i := 0; i < len(tasks); {
		end := i + 1
		for end < len(tasks) && tasks[end] == tasks[i] {
			end++
		}
		part := strconv.Itoa(tasks[i])
		if end-i > 1 {
			part += fmt.Sprintf("(x%d)", end-i)
		}
		parts, i = append(parts, part), end
	}
	return strings.Join(parts, ",")
}

// NodeOfTask returns the index of the node that has a task, if tasks are numbered in the order of
// nodes. Tasks has the form of [ParseTasksPerNode], but is not expanded: it may belong to another user
// and may be short but have many nodes. NodeOfTask returns -1 if there is no such task.
func NodeOfTask(tasks string, task int) int {
	node := 0
	for part := range strings.SplitSeq(tasks, ",") {
		n, times, err := parseTasksOfNodes(part)
		if err != nil || task < 0 {
			return -1
		}
		if task < n*times {
			return node + task/n
		}
		task, node = task-n*times, node+times
	}
	return -1
}

// ParseTasksPerNode parses numbers of tasks in the form of SLURM_STEP_TASKS_PER_NODE: "3,2(x2)"
// are three tasks on node 0 and two tasks each on nodes 1 and 2.
func ParseTasksPerNode(s string) ([]int, error) {
	var tasks []int
	for part := range strings.SplitSeq(s, ",") {
		n, times, err := parseTasksOfNodes(part)
		if err == nil && len(tasks)+times > maxHosts {
			err = fmt.Errorf("more than %d nodes", maxHosts)
		}
		if err != nil {
			return nil, fmt.Errorf("tasks per node %s: %q: %w", excerpt(s, 0), part, err)
		}
		for range times {
			tasks = append(tasks, n)
		}
	}
	return tasks, nil
}

// parseTasksOfNodes parses a part of the list of [ParseTasksPerNode]: n tasks on each of several nodes.
func parseTasksOfNodes(part string) (n, nodes int, err error) {
	number, repeat, isRepeated := strings.Cut(part, "(x")
	nodes = 1
	if n, err = parseCount(number); err == nil && isRepeated {
		inner, isClosed := strings.CutSuffix(repeat, ")")
		if nodes, err = parseCount(inner); err == nil && (!isClosed || nodes == 0) {
			err = fmt.Errorf(`not of the form "2(x3)"`)
		}
	}
	return n, nodes, err
}

// maxCount limits counts. It is far above Slurm's limits, and the sum of maxHosts such
// counts does not overflow.
const maxCount = 1<<31 - 1

// parseCount parses a decimal number without a sign, up to maxCount.
func parseCount(s string) (int, error) {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return 0, fmt.Errorf("%q is not a number", s)
		}
	}
	n, err := strconv.Atoi(s)
	switch {
	case s == "":
		return 0, fmt.Errorf("missing number")
	case err != nil || n > maxCount:
		return 0, fmt.Errorf("%q is too large", s)
	}
	return n, nil
}
