package launch

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"syscall"

	"github.com/ddpbatch/ddpbatch/internal/environ"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/templates/sites"
)

// stepRanks are ranks that srun started as a step of the allocation.
type stepRanks struct {
	a    *attempt
	srun *exec.Cmd
	ends *taskEnds
	done sync.WaitGroup
	// kills counts the calls of kill. The first call cancels the step if its ID is known. Other calls
	// kill srun.
	kills int
}

func startStep(a *attempt) (ranks, error) {
	step := buildStep(a.o, a.nodes, a.tasks)
	// Do not wait for what the previous step still holds on a lost node.
	step.Overlap = step.NoKill && a.number > 1
	argv := step.SrunArgv()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = step.Environ(a.environ)
	ends := &taskEnds{out: a.o.Stderr, hosts: a.hosts}
	cmd.Stdout, cmd.Stderr = a.o.Stdout, ends
	// Do not wait for other processes that hold srun's standard error.
	cmd.WaitDelay = killGrace
	// The rendezvous forwards signals to the ranks in order. srun would forward its own
	// signals at any time.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s := &stepRanks{a: a, srun: cmd, ends: ends}
	if err := startWithDeathSignal(cmd, &s.done, syscall.SIGKILL); err != nil {
		return nil, fmt.Errorf("start ranks: %w", err)
	}
	return s, nil
}

// buildStep returns the step that runs the given numbers of tasks on nodes.
func buildStep(o Options, nodes []string, tasks []int) slurm.Step {
	j := o.Job
	perNode := slices.Max(tasks)
	size := stepSize(o, j, len(nodes), perNode)
	s := slurm.Step{
		StepSize: size, CPUBind: string(j.Slurm.CPUBind), Name: string(j.Name), NoKill: j.Restart.SurvivesNodeLoss(),
		Argv: []string{o.Binary, "run", "--run-dir", o.Dir.Path},
	}
	if o.Partial || len(nodes) < len(o.Allocation.Nodes) {
		s.NodeList = nodes
	}
	if j.Slurm.GPUsPerNode > 0 {
		s.GPUBind = string(j.Slurm.GPUBind)
	}
	if j.Slurm.ShareGPUs && !j.IsSet("slurm.gpu_bind") {
		s.GPUBind = slurm.MergeGPUBind(s.GPUBind) // the site's binding may be for one GPU per rank
	}
	if perNode < j.TasksPerNode() {
		// Bindings are written for ranks. torchrun's workers share the resources of its one
		// task.
		s.CPUBind = slurm.MergeCPUBind(s.CPUBind, j.TasksPerNode()/perNode)
		s.GPUBind = slurm.MergeGPUBind(s.GPUBind)
	}
	if s.Components = componentSizes(o, tasks); s.Components == nil && !isUniform(tasks) {
		s.TaskNodes = taskNodes(nodes, tasks)
	}
	if startsMPI(j) {
		s.MPI = cmp.Or(string(j.Slurm.MPI), defaultMPI)
	}
	options, prefix := containerArgs(j, o.Site, o.Dir.Path, o.Binary)
	s.Options = slices.Concat(jobs.Strings(o.Site.Step.Options), jobs.Strings(j.Slurm.StepOptions), options)
	s.Prefix = environ.StartArgv(o.Binary, prefix)
	return s
}

// stepSize returns the size of a step, or of its part in one component, with the given number of tasks
// per node. The resources per node or task come from job.
func stepSize(o Options, job *jobs.Job, nodes, perNode int) slurm.StepSize {
	size := slurm.StepSize{
		Nodes: nodes, TasksPerNode: perNode, CPUsPerTask: int(max(0, job.Slurm.CPUsPerTask)), Gres: string(job.Slurm.Gres),
	}
	if job.Command != nil && job.Command.Launcher == jobs.LauncherTorchrun {
		// torchrun starts the processes of a node inside one task, which needs the cores of
		// all of them.
		size.CPUsPerTask *= job.TasksPerNode()
	}
	if gpus := job.Slurm.GPUsPerNode; gpus > 0 {
		switch {
		case o.Site.Step.GPUs == sites.StepGPUsPerTask && gpus >= perNode:
			size.GPUsPerTask = gpus / perNode
		case o.Site.Request.GPUs != "none": // with whole nodes, the step gets all GPUs anyway
			size.GPUsPerNode = gpus
		}
	}
	return size
}

// componentSizes returns the parts of a step in the components of a heterogeneous job, or nil for
// other jobs. The tasks of all nodes have the order of the components.
func componentSizes(o Options, tasks []int) (parts []slurm.StepSize) {
	groups := o.Job.SplitGroups()
	first := 0
	for i, c := range o.Allocation.Components {
		job := groups[0]
		if i < len(groups) {
			job = groups[i]
		}
		own := tasks[first : first+len(c.Nodes)]
		first += len(c.Nodes)
		part := stepSize(o, job, len(c.Nodes), slices.Max(own))
		if !isUniform(own) {
			part.TaskNodes = taskNodes(c.Nodes, own)
		}
		parts = append(parts, part)
	}
	return parts
}

func isUniform(tasks []int) bool { return slices.Min(tasks) == slices.Max(tasks) }

// taskNodes returns the node of each task.
func taskNodes(nodes []string, tasks []int) (all []string) {
	for i, node := range nodes {
		all = append(all, slices.Repeat([]string{node}, tasks[i])...)
	}
	return all
}

func (s *stepRanks) wait() error {
	s.done.Wait()
	if state := s.srun.ProcessState; state != nil && !state.Success() {
		if why := s.ends.execError(); why != "" {
			return hints.Errorf("check that the file exists at this path on every node, then submit again", "execute %s", why)
		}
		return fmt.Errorf("srun: %s", state)
	}
	return nil
}

// processEnds returns what srun has reported. srun does not report ranks that ended with 0. With
// SLURM_SRUN_REDUCE_TASK_EXIT_MSG it reports only some of the others.
func (s *stepRanks) processEnds() map[int]processEnd { return s.ends.all() }

func (s *stepRanks) kill(ctx context.Context) {
	s.kills++
	s.ends.stopRecording()
	s.a.mu.Lock()
	id := s.a.step
	s.a.mu.Unlock()
	if id != "" && s.kills == 1 {
		ctx, cancel := context.WithTimeout(ctx, killGrace)
		defer cancel()
		client := slurm.Client{Environ: s.a.o.Environ}
		if err := client.KillStep(ctx, s.a.o.Allocation.JobID+"."+id); err == nil {
			return
		}
	}
	_ = s.srun.Process.Kill()
}
