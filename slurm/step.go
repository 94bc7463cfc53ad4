package slurm

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Step is a step to start inside an allocation: one task per rank.
type Step struct {
	Nodes        int
	TasksPerNode int // the same on every node
	CPUsPerTask  int
	GPUsPerNode  int // as in [StepSize]
	GPUsPerTask  int // as in [StepSize]; read there before use

	// NodeList are the nodes to use, where these are not all of the allocation; as
	// many as Nodes, in the allocation's order, in which ranks are numbered.
	NodeList []string
	// NoKill keeps Slurm from ending the step when one of its nodes fails.
	NoKill bool
	// Overlap starts the step on processors and GPUs that another one still holds:
	// a step of which a node was lost holds all of its nodes until the controller has
	// noticed that. It needs Slurm 20.11.
	Overlap bool

	// Components are the sizes of the step's part in each component of a
	// heterogeneous job, in order. Where there are any, the five above are not
	// used.
	Components []StepSize

	CPUBind string   // --cpu-bind, such as "none", "cores" or "mask_cpu:0xff,0xff00"; empty leaves it to Slurm
	GPUBind string   // --gpu-bind, such as "none", "closest" or "map_gpu:0,1"; empty leaves it to Slurm
	MPI     string   // --mpi, such as "pmix"; empty is "none"
	Options []string // further options for srun; they come last and win

	Name   string   // shown by squeue --steps and sacct; empty for the program's name
	Label  bool     // put the task's number before each line of output
	Prefix []string // a program that runs Argv in each task, with its arguments, such as {"apptainer", "exec", "x.sif"}
	Argv   []string // the program and its arguments, the same for every task
}

// StepSize says how many tasks the part of a step in one component has, and what
// each of them gets.
type StepSize struct {
	Nodes        int
	TasksPerNode int // the same on every node
	CPUsPerTask  int

	// GPUsPerNode are those of the job's GPUs that the step gets; every task of a
	// node sees all of them, as CUDA's peer access needs. 0 leaves it to Slurm,
	// which gives a step all.
	GPUsPerNode int

	// GPUsPerTask gives each task GPUs of its own instead, and GPUsPerNode is not
	// passed on: with both, srun refuses the step or gives what neither says,
	// depending on the version. It is for centres that want it so, and a trap:
	// --gpus-per-task implies --gpu-bind=per_task, so that each task sees its own
	// GPUs only, numbered from 0 (CUDA_VISIBLE_DEVICES=0 in every task). Then a
	// rank must use device 0 and not its local rank, and CUDA IPC between the
	// ranks of a node may fail; GPUBind "none" shows all of them again. It needs
	// an explicit --ntasks, which is always given, and clusters with select/linear
	// reject it from 24.11 on.
	GPUsPerTask int
}

// SrunArgv returns the command line that starts the step. Every count is given,
// because which of them srun takes from the job's environment differs between
// versions: 22.05 to 23.02 ignore SLURM_CPUS_PER_TASK and would give each task
// one core.
//
// The fate of the ranks is left to whoever started the step: a rank that fails
// neither ends the step (srun's own way of doing so hides the exit code, which
// becomes 143) nor starts a clock.
//
// In a heterogeneous job srun uses the first component alone unless told. If all
// sizes are the same they are named together (--het-group=0,1); otherwise each
// gets its own part of the command line, with ":" between them. Both make one
// step, in which ranks count over all components in their order.
func (s Step) SrunArgv() []string {
	argv := []string{"srun"}
	switch {
	case len(s.Components) == 0:
		return s.appendPart(argv, StepSize{s.Nodes, s.TasksPerNode, s.CPUsPerTask, s.GPUsPerNode, s.GPUsPerTask})
	case allEqual(s.Components):
		groups := make([]string, len(s.Components))
		for i := range groups {
			groups[i] = strconv.Itoa(i)
		}
		return s.appendPart(append(argv, "--het-group="+strings.Join(groups, ",")), s.Components[0])
	}
	for i, size := range s.Components {
		if i > 0 {
			argv = append(argv, ":")
		}
		argv = s.appendPart(append(argv, "--het-group="+strconv.Itoa(i)), size)
	}
	return argv
}

// appendPart appends the options of one size and the program.
func (s Step) appendPart(argv []string, size StepSize) []string {
	argv = append(argv,
		"--nodes="+strconv.Itoa(size.Nodes),
		"--ntasks="+strconv.Itoa(size.Nodes*size.TasksPerNode),
		"--ntasks-per-node="+strconv.Itoa(size.TasksPerNode),
		"--cpus-per-task="+strconv.Itoa(size.CPUsPerTask),
		"--kill-on-bad-exit=0",
		"--wait=0",
		"--export=ALL",
		"--input=none",
		"--mpi="+cmp.Or(s.MPI, "none"),
	)
	switch {
	case size.GPUsPerTask > 0:
		argv = append(argv, "--gpus-per-task="+strconv.Itoa(size.GPUsPerTask))
	case size.GPUsPerNode > 0:
		argv = append(argv, "--gres=gpu:"+strconv.Itoa(size.GPUsPerNode))
	}
	if len(s.NodeList) > 0 {
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

func allEqual(sizes []StepSize) bool {
	return !slices.ContainsFunc(sizes, func(size StepSize) bool { return size != sizes[0] })
}
