package slurm

import (
	"cmp"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// A Step describes a step to start in an allocation. The name of its program, the first word of Prefix
// and Argv, has a slash: srun would also search the working directory, where other users may create
// files.
type Step struct {
	StepSize // ignored if Components is set

	// Components are the sizes of the step in each component of a heterogeneous job, in
	// order; nil for other jobs. The step does not run in components without nodes.
	Components []StepSize

	// NodeList are the nodes of the step in the order of the allocation, which is the order
	// of ranks; nil for all nodes. Its length must be Nodes.
	NodeList []string
	// NoKill keeps the step running if one of its nodes fails.
	NoKill bool
	// Overlap lets the step share CPUs and GPUs with other steps. After a node failure, the
	// previous step holds its nodes until the controller has noticed the failure. Overlap
	// requires Slurm 20.11.
	Overlap bool

	CPUBind string   // --cpu-bind, such as "none", "cores", or "mask_cpu:0xff,0xff00"; empty for Slurm's default
	GPUBind string   // --gpu-bind, such as "none", "closest", or "map_gpu:0,1"; empty for Slurm's default
	MPI     string   // --mpi, such as "pmix"; empty for "none"
	Options []string // additional options of srun, which override the others

	Name   string   // for squeue --steps and sacct; empty for the name of the program
	Label  bool     // prefix each line of output with the task
	Prefix []string // program that runs Argv in each task, with its arguments, such as {"apptainer", "exec", "x.sif"}
	Argv   []string // program and arguments of all tasks
}

// A StepSize describes the resources of a step, or of its part in one component.
type StepSize struct {
	Nodes        int
	TasksPerNode int // same for all nodes
	CPUsPerTask  int // 0 for all CPUs of the job on each node, which the tasks share

	// TaskNodes has the node of each task, for different numbers of tasks per node. Tasks of
	// a node must be adjacent, and nodes must be in the order of the allocation. It replaces
	// Nodes, TasksPerNode, and the step's NodeList. See [Step.Environ].
	TaskNodes []string

	// GPUsPerNode is the number of the job's GPUs on each node that the step uses. All
	// tasks of a node see all of them, as CUDA peer access requires. With 0, Slurm gives
	// all GPUs to the step.
	GPUsPerNode int

	// GPUsPerTask assigns separate GPUs to each task, for sites that require it. It takes
	// precedence over GPUsPerNode: with both options, srun rejects the step or gives
	// results that depend on its version.
	//
	// --gpus-per-task implies --gpu-bind=per_task. Each task then sees only its own GPUs,
	// numbered from 0, so a rank must use device 0 and not its local rank. CUDA IPC between
	// the ranks of a node may fail. GPUBind "none" makes all GPUs visible again. Since
	// 24.11, clusters with select/linear reject the option.
	GPUsPerTask int

	// Gres are other generic resources per node, such as "nvme:1". Empty with GPUsPerNode
	// means none, because srun's --gres replaces the job's.
	Gres string
}

// OneTaskPerNode returns the sizes of the parts of a step that runs one task with one core on each of the
// given nodes of a heterogeneous job. Each element of components has the nodes of one component. For
// other jobs, both are nil.
func OneTaskPerNode(components [][]string, nodes []string) (parts []StepSize) {
	for _, component := range components {
		size := StepSize{CPUsPerTask: 1}
		for _, node := range nodes {
			if slices.Contains(component, node) {
				size.TaskNodes = append(size.TaskNodes, node)
			}
		}
		parts = append(parts, size)
	}
	return parts
}

// SrunArgv returns the command line that starts the step. It sets every count explicitly,
// because versions of srun differ in the variables that they read: 22.05 to 23.02 ignore
// SLURM_CPUS_PER_TASK and would give one core to each task. The exception is a CPUsPerTask of 0:
// --cpus-per-task implies --exact (since 22.05), and without both, the step gets all CPUs of the
// job on its nodes.
//
// srun does not stop the step if a rank fails. The caller does this, because srun would
// replace the exit code by 143.
//
// In a heterogeneous job, srun uses only the first component by default. If all sizes are
// equal, one part of the command line names all components (--het-group=0,1). Otherwise
// each component has its own part, with ":" between them. Both forms start one step, with
// ranks numbered in the order of components.
func (s Step) SrunArgv() []string {
	argv := []string{"srun"}
	switch {
	case len(s.Components) == 0:
		return s.appendPart(argv, s.StepSize)
	case !slices.ContainsFunc(s.Components, func(size StepSize) bool { return !reflect.DeepEqual(size, s.Components[0]) || len(size.TaskNodes) > 0 }):
		groups := make([]string, len(s.Components))
		for i := range groups {
			groups[i] = strconv.Itoa(i)
		}
		return s.appendPart(append(argv, "--het-group="+strings.Join(groups, ",")), s.Components[0])
	}
	for i, size := range s.Components {
		if size.Nodes == 0 && len(size.TaskNodes) == 0 {
			continue
		}
		if len(argv) > 1 {
			argv = append(argv, ":")
		}
		argv = s.appendPart(append(argv, "--het-group="+strconv.Itoa(i)), size)
	}
	return argv
}

// appendPart appends the options for one size, and the program.
func (s Step) appendPart(argv []string, size StepSize) []string {
	if len(size.TaskNodes) > 0 {
		// Since 24.11, --nodes is not valid with an arbitrary distribution.
		argv = append(argv,
			"--ntasks="+strconv.Itoa(len(size.TaskNodes)),
			"--distribution=arbitrary",
			"--nodelist="+strings.Join(size.TaskNodes, ","))
	} else {
		argv = append(argv,
			"--nodes="+strconv.Itoa(size.Nodes),
			"--ntasks="+strconv.Itoa(size.Nodes*size.TasksPerNode),
			"--ntasks-per-node="+strconv.Itoa(size.TasksPerNode))
	}
	if size.CPUsPerTask > 0 {
		argv = append(argv, "--cpus-per-task="+strconv.Itoa(size.CPUsPerTask))
	}
	argv = append(argv,
		"--kill-on-bad-exit=0",
		"--wait=0",
		"--export=ALL",
		"--input=none",
		"--mpi="+cmp.Or(s.MPI, "none"),
	)
	switch {
	case size.GPUsPerTask > 0:
		argv = append(argv, "--gpus-per-task="+strconv.Itoa(size.GPUsPerTask))
		if size.Gres != "" {
			argv = append(argv, "--gres="+size.Gres)
		}
	case size.GPUsPerNode > 0 && size.Gres != "":
		argv = append(argv, "--gres=gpu:"+strconv.Itoa(size.GPUsPerNode)+","+size.Gres)
	case size.GPUsPerNode > 0:
		argv = append(argv, "--gres=gpu:"+strconv.Itoa(size.GPUsPerNode))
	}
	if len(s.NodeList) > 0 && len(size.TaskNodes) == 0 {
		argv = append(argv, "--nodelist="+FoldHosts(s.NodeList))
	}
	if s.NoKill {
		argv = append(argv, "--no-kill")
	}
	if s.Overlap {
		argv = append(argv, "--overlap")
	}
	if s.CPUBind != "" {
		argv = append(argv, "--cpu-bind="+s.CPUBind)
	}
	if s.GPUBind != "" {
		argv = append(argv, "--gpu-bind="+s.GPUBind)
	}
	if s.Name != "" {
		argv = append(argv, "--job-name="+s.Name)
	}
	if s.Label {
		argv = append(argv, "--label")
	}
	return slices.Concat(argv, s.Options, s.Prefix, s.Argv)
}

// Environ returns the environment for srun. If a part of the step has TaskNodes, it removes the
// user's hostfile and the job's number of tasks per node. srun would print a warning that it
// cannot honor this number. If a part has a CPUsPerTask of 0, it removes the variables with which srun
// would not use all CPUs of the job.
func (s Step) Environ(environ []string) []string {
	parts := s.Components
	if len(parts) == 0 {
		parts = []StepSize{s.StepSize}
	}
	var prefixes []string
	if slices.ContainsFunc(parts, func(size StepSize) bool { return len(size.TaskNodes) > 0 }) {
		prefixes = append(prefixes, "SLURM_NTASKS_PER_NODE", "SLURM_HOSTFILE=")
	}
	if slices.ContainsFunc(parts, func(size StepSize) bool { return size.CPUsPerTask == 0 }) {
		prefixes = append(prefixes, "SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK=", "SLURM_TRES_PER_TASK", "SLURM_EXACT=", "SLURM_EXCLUSIVE=")
	}
	return slices.DeleteFunc(slices.Clone(environ), func(v string) bool { return hasAnyPrefix(v, prefixes) })
}

// maskKinds maps the kinds of --cpu-bind that list CPUs or NUMA domains to the kind for
// their union.
var maskKinds = map[string]string{"map_cpu": "mask_cpu", "mask_cpu": "mask_cpu", "map_ldom": "mask_ldom", "mask_ldom": "mask_ldom"}

// MergeCPUBind returns the value of --cpu-bind for one task that replaces several tasks.
// bind is the value for these tasks, and the result is the union of their CPUs. If a
// binding by task has no union, the result is "none". MergeCPUBind does not change bindings
// to cores, sockets, threads, and NUMA domains: Slurm derives them from the CPUs of the
// task.
func MergeCPUBind(bind string, tasks int) string {
	verbosity, rest, ok := strings.Cut(bind, ",")
	if ok && slices.Contains([]string{"q", "quiet", "v", "verbose"}, verbosity) {
		verbosity, bind = verbosity+",", rest
	} else {
		verbosity = ""
	}
	kind, list, _ := strings.Cut(bind, ":")
	if maskKind, ok := maskKinds[kind]; ok {
		mask, ok := mergeMasks(list, tasks, kind != maskKind)
		if !ok {
			return verbosity + "none"
		}
		return fmt.Sprintf("%s%s:0x%x", verbosity, maskKind, mask)
	}
	if kind == "rank" || kind == "rank_ldom" {
		return verbosity + "none"
	}
	return verbosity + bind
}

// mergeMasks returns the union of the masks of the first tasks. The items of list are masks
// or, if areIndices is set, bit indices. An item may have a repeat count, such as "0x3*4".
// Tasks beyond the end of the list start over at its beginning.
func mergeMasks(list string, tasks int, areIndices bool) (*big.Int, bool) {
	union := new(big.Int)
	bound := 0
	for item := range strings.SplitSeq(list, ",") {
		item, repeat, isRepeated := strings.Cut(item, "*")
		n := 1
		if isRepeated {
			var err error
			if n, err = strconv.Atoi(repeat); err != nil || n < 1 {
				return nil, false
			}
		}
		if bound >= tasks {
			break
		}
		bound += n
		if areIndices {
			bit, err := strconv.ParseUint(item, 0, 16)
			if err != nil {
				return nil, false
			}
			union.SetBit(union, int(bit), 1)
			continue
		}
		mask, ok := new(big.Int).SetString(strings.TrimPrefix(strings.ToLower(item), "0x"), 16)
		if !ok || mask.Sign() <= 0 {
			return nil, false
		}
		union.Or(union, mask)
	}
	return union, true
}

// MergeGPUBind returns the value of --gpu-bind for one task that replaces several tasks, and
// needs all of their GPUs. See [MergeCPUBind].
func MergeGPUBind(bind string) string {
	verbosity := ""
	for _, v := range []string{"quiet,", "verbose,"} {
		if rest, ok := strings.CutPrefix(bind, v); ok {
			verbosity, bind = v, rest
		}
	}
	kind, _, _ := strings.Cut(bind, ":")
	if slices.Contains([]string{"map_gpu", "mask_gpu", "single", "per_task"}, kind) {
		return verbosity + "none"
	}
	return verbosity + bind
}
