package launch

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"sync"
	"syscall"

	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/templates/sites"
)

// stepRanks are ranks that srun started as a step of the allocation.
type stepRanks struct {
	a    *attempt
	srun *exec.Cmd
	ends *taskEnds
	done sync.WaitGroup
	// How often kill was called: it asks Slurm first, then ends srun.
	kills int
}

func startStep(a *attempt) (ranks, error) {
	step := step(a.o, a.nodes, a.world/len(a.nodes))
	// What a lost node keeps of the step before is not waited for.
	step.Overlap = step.NoKill && a.number > 1
	argv := step.SrunArgv()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = a.environ
	ends := &taskEnds{to: a.o.Stderr, hosts: a.hosts}
	cmd.Stdout, cmd.Stderr = a.o.Stdout, ends
	// What else may hold srun's standard error is not waited for.
	cmd.WaitDelay = killGrace
	// Signals reach the ranks through the rendezvous, in order; srun would pass
	// its own on at any time.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s := &stepRanks{a: a, srun: cmd, ends: ends}
	if err := startTied(cmd, &s.done, syscall.SIGKILL); err != nil {
		return nil, fmt.Errorf("start the ranks: %w", err)
	}
	return s, nil
}

// step returns the step that runs perNode tasks on each of these nodes.
func step(o Options, nodes []string, perNode int) slurm.Step {
	j := o.Job
	size := slurm.StepSize{
		Nodes: len(nodes), TasksPerNode: perNode,
		// torchrun starts a node's processes inside one task, which needs the
		// cores of all of them.
		CPUsPerTask: int(j.Slurm.CPUsPerTask) * j.TasksPerNode() / perNode,
	}
	if gpus := int(j.Slurm.GPUsPerNode); gpus > 0 {
		switch {
		case o.Site.Step.GPUs == sites.StepGPUsPerTask:
			size.GPUsPerTask = gpus / perNode
		case o.Site.Request.GPUs != "none": // with whole nodes, their GPUs are the step's anyway
			size.GPUsPerNode = gpus
		}
	}
	s := slurm.Step{
		StepSize: size, CPUBind: string(j.Slurm.CPUBind), Name: string(j.Name), NoKill: j.Restart.OutlivesNodes(),
		Argv: []string{o.Binary, "run", "--run-dir", o.Dir.Path},
	}
	if len(nodes) < len(o.Allocation.Nodes) {
		s.NodeList = nodes
	}
	if j.Slurm.GPUsPerNode > 0 {
		s.GPUBind = string(j.Slurm.GPUBind)
	}
	if perNode < j.TasksPerNode() {
		// Bindings are written for ranks. torchrun's workers share what its one task gets.
		s.CPUBind = slurm.MergeCPUBind(s.CPUBind, j.TasksPerNode()/perNode)
		s.GPUBind = slurm.MergeGPUBind(s.GPUBind)
	}
	for _, c := range o.Allocation.Components {
		part := size
		part.Nodes = len(c.Nodes)
		s.Components = append(s.Components, part)
	}
	if startsMPI(j) {
		s.MPI = cmp.Or(string(j.Slurm.MPI), defaultMPI)
	}
	for _, option := range o.Site.Step.Options {
		s.Options = append(s.Options, string(option))
	}
	options, prefix := container(j, o.Site, o.Dir.Path, o.Binary)
	s.Options, s.Prefix = append(s.Options, options...), prefix
	return s
}

func (s *stepRanks) wait() error {
	s.done.Wait()
	if state := s.srun.ProcessState; state != nil && !state.Success() {
		if why := s.ends.unexecuted(); why != "" {
			return &unexecutedError{why}
		}
		return fmt.Errorf("srun: %s", state)
	}
	return nil
}

// unexecutedError is a program of the ranks that a node cannot execute.
type unexecutedError struct{ why string }

func (e *unexecutedError) Error() string { return "execute " + e.why }

// Hint says what to look at.
func (e *unexecutedError) Hint() string {
	return "look whether that file is still there, and whether each node sees it by this path; then submit again"
}

// ended is what srun has said: not of ranks that ended well, nor of all where
// SLURM_SRUN_REDUCE_TASK_EXIT_MSG has it say less.
func (s *stepRanks) ended() map[int]processEnd { return s.ends.all() }

func (s *stepRanks) kill(ctx context.Context) {
	s.kills++
	s.ends.close()
	s.a.mu.Lock()
	id := s.a.step
	s.a.mu.Unlock()
	if id != "" && s.kills == 1 {
		ctx, cancel := context.WithTimeout(ctx, killGrace)
		defer cancel()
		client := slurm.Client{Environ: s.a.o.Environ}
		if err := client.CancelStep(ctx, s.a.o.Allocation.JobID+"."+id, "KILL"); err == nil {
			return
		}
	}
	_ = s.srun.Process.Kill()
}
