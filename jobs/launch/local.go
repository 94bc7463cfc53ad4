package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"

	"github.com/ddpbatch/ddpbatch/internal/environ"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/launchers"
)

// localRanks are the ranks on this machine, without Slurm.
type localRanks struct {
	commands []*exec.Cmd
	done     sync.WaitGroup
}

// localArgv returns the command line of a rank that the launcher starts itself. In an allocation, this
// is a program that runs once, in the job's container if it has one.
func localArgv(o Options) []string {
	argv := []string{o.Binary, "run", "--run-dir", o.Dir.Path}
	if o.Allocation == nil {
		return argv
	}
	_, prefix := containerArgs(o.Job, o.Site, o.Dir.Path, o.Binary)
	return append(environ.StartArgv(o.Binary, prefix), argv...)
}

func startLocal(a *attempt) (ranks, error) {
	l := &localRanks{}
	argv := localArgv(a.o)
	for rank := range a.world {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = append(a.environ[:len(a.environ):len(a.environ)],
			envLocalRank+"="+strconv.Itoa(rank), envLocalSize+"="+strconv.Itoa(a.world))
		cmd.Stdout, cmd.Stderr = a.o.Stdout, a.o.Stderr
		// The launcher receives Control-C and forwards it as a stop request.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		// Do not send SIGKILL: a rank must also be able to stop the workers of its program.
		if err := startWithDeathSignal(cmd, &l.done, syscall.SIGTERM); err != nil {
			l.kill(context.Background())
			return nil, err
		}
		l.commands = append(l.commands, cmd)
	}
	return l, nil
}

func (l *localRanks) wait() error {
	l.done.Wait()
	return nil
}

func (l *localRanks) processEnds() map[int]processEnd {
	ends := map[int]processEnd{}
	for rank, c := range l.commands {
		if c.ProcessState != nil {
			ends[rank] = processEndOf(c.ProcessState)
		}
	}
	return ends
}

func (l *localRanks) kill(context.Context) {
	for _, c := range l.commands {
		p := c.Process
		// Kill the whole group: a user's program and its data-loading workers.
		if err := syscall.Kill(-p.Pid, syscall.SIGKILL); errors.Is(err, syscall.ESRCH) {
			_ = p.Kill()
		}
	}
}

// HostOptions describe how to start the ranks of one host, if a launcher has started one
// process on each host ([RankInfo.PerHost]).
type HostOptions struct {
	Info           RankInfo
	Argv           []string // command line of one rank: this program, "run", and its arguments
	Environ        []string
	Stdout, Stderr *os.File
	Signals        <-chan os.Signal // forwarded to every rank
}

// RanksToStart returns how many ranks this process must start. It returns 0 if the process is a
// rank itself. It returns an error if the host has fewer GPUs than ranks, or if the job sets
// slurm.ranks_per_node.
func RanksToStart(p RankInfo, job *jobs.Job) (int, error) {
	n := job.TasksPerNode()
	torchrun := job.Command != nil && job.Command.Launcher == jobs.LauncherTorchrun
	if !p.PerHost || n == 1 || torchrun {
		return 0, nil
	}
	if len(job.Slurm.RanksPerNode) > 0 {
		return 0, hints.Errorf("set slurm.tasks_per_node", "slurm.ranks_per_node requires Slurm, but %s starts one process on each host", p.Launcher)
	}
	if job.Slurm.GPUsPerNode > 0 && !job.Slurm.ShareGPUs && p.GPUs != launchers.Unknown && n > p.GPUs {
		return 0, fmt.Errorf("the job needs %d GPUs on each host, one per rank, but %s reports %d", n, p.Launcher, p.GPUs)
	}
	return n, nil
}

// RunHost starts the given number of ranks on this host and waits for them. The ranks get the
// variables of torchrun's workers. RunHost returns the exit code of the lowest rank that did
// not end with 0, or exitLost if a signal killed it. It does not stop the other ranks after a
// failure: the rendezvous makes all ranks of a job end together.
func RunHost(o HostOptions, ranks int) (exit int, err error) {
	var done sync.WaitGroup
	var commands []*exec.Cmd
	signalAll := func(s syscall.Signal) {
		for _, c := range commands {
			_ = syscall.Kill(-c.Process.Pid, s)
		}
	}
	for local := range ranks {
		cmd := exec.Command(o.Argv[0], o.Argv[1:]...)
		cmd.Env = append(removeTorchrunVars(o.Environ), "TORCHELASTIC_RUN_ID="+o.Info.Launcher+" "+o.Info.Start)
		for name, n := range map[string]int{
			"RANK": o.Info.Rank*ranks + local, "WORLD_SIZE": o.Info.WorldSize * ranks, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": ranks,
			"GROUP_RANK": o.Info.Rank, "GROUP_WORLD_SIZE": o.Info.WorldSize,
		} {
			cmd.Env = append(removeVars(cmd.Env, name), name+"="+strconv.Itoa(n))
		}
		cmd.Stdout, cmd.Stderr = o.Stdout, o.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := startWithDeathSignal(cmd, &done, syscall.SIGTERM); err != nil {
			signalAll(syscall.SIGKILL)
			done.Wait()
			return exitFailed, fmt.Errorf("start local rank %d: %w", local, err)
		}
		commands = append(commands, cmd)
	}
	ended := make(chan struct{})
	go func() { done.Wait(); close(ended) }()
	for {
		select {
		case s := <-o.Signals:
			for _, c := range commands {
				_ = c.Process.Signal(s) // not by the PID, which another process may have by now
			}
		case <-ended:
			for _, c := range commands {
				if code := c.ProcessState.ExitCode(); code > 0 {
					return code, nil
				} else if code < 0 {
					return exitLost, nil
				}
			}
			return 0, nil
		}
	}
}
