package slurm

import "strconv"

// Step is a step to start inside an allocation: one task per rank.
type Step struct {
	Nodes        int
	TasksPerNode int // the same on every node
	CPUsPerTask  int
	GPUsPerNode  int      // of the job's GPUs; 0 leaves it to Slurm, which gives a step all of them
	Name         string   // shown by squeue --steps and sacct; empty for the program's name
	Label        bool     // put the task's number before each line of output
	Argv         []string // the program and its arguments, the same for every task
}

// SrunArgv returns the command line that starts the step. Every count is given,
// because which of them srun takes from the job's environment differs between
// versions: 22.05 to 23.02 ignore SLURM_CPUS_PER_TASK and would give each task
// one core.
//
// The fate of the ranks is left to whoever started the step: a rank that fails
// neither ends the step (srun's own way of doing so hides the exit code, which
// becomes 143) nor starts a clock. GPUs are given per node and not per task, so
// that every rank of a node sees all of its GPUs, as CUDA's peer access needs.
func (s Step) SrunArgv() []string {
	argv := []string{
		"srun",
		"--nodes=" + strconv.Itoa(s.Nodes),
		"--ntasks=" + strconv.Itoa(s.Nodes*s.TasksPerNode),
		"--ntasks-per-node=" + strconv.Itoa(s.TasksPerNode),
		"--cpus-per-task=" + strconv.Itoa(s.CPUsPerTask),
		"--kill-on-bad-exit=0",
		"--wait=0",
		"--export=ALL",
		"--input=none",
		"--mpi=none",
	}
	if s.GPUsPerNode > 0 {
		argv = append(argv, "--gres=gpu:"+strconv.Itoa(s.GPUsPerNode))
	}
	if s.Name != "" {
		argv = append(argv, "--job-name="+s.Name)
	}
	if s.Label {
		argv = append(argv, "--label")
	}
	return append(argv, s.Argv...)
}
