package launch

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"syscall"

	"github.com/ddpbatch/ddpbatch/slurm"
)

// stepRanks are ranks that srun started as a step of the allocation.
type stepRanks struct {
	a    *attempt
	srun *exec.Cmd
	done sync.WaitGroup
	// How often kill was called: it asks Slurm first, then ends srun.
	kills int
}

func startStep(a *attempt) (ranks, error) {
	j, nodes := a.o.Job, len(a.o.Allocation.Nodes)
	perNode := a.world / nodes
	step := slurm.Step{
		Nodes: nodes, TasksPerNode: perNode, GPUsPerNode: int(j.Slurm.GPUsPerNode),
		// torchrun starts a node's processes inside one task, which needs the
		// cores of all of them.
		CPUsPerTask: int(j.Slurm.CPUsPerTask) * j.TasksPerNode() / perNode,
		Name:        string(j.Name),
		Argv:        []string{a.o.Binary, "run", "--run-dir", a.o.Dir.Path},
	}
	argv := step.SrunArgv()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = a.environ
	cmd.Stdout, cmd.Stderr = a.o.Stdout, a.o.Stderr
	// Signals reach the ranks through the rendezvous, in order; srun would pass
	// its own on at any time.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s := &stepRanks{a: a, srun: cmd}
	if err := startTied(cmd, &s.done, syscall.SIGKILL); err != nil {
		return nil, fmt.Errorf("start the ranks: %w", err)
	}
	return s, nil
}

func (s *stepRanks) wait() error {
	s.done.Wait()
	if state := s.srun.ProcessState; state != nil && !state.Success() {
		return fmt.Errorf("srun: %s", state)
	}
	return nil
}

func (s *stepRanks) kill(ctx context.Context) {
	s.kills++
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
