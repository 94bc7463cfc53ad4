package launch

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/launchers"
)

// HostOptions describe how to start the ranks of one host, if a launcher has started one
// process on each host ([Place.PerHost]).
type HostOptions struct {
	Place          Place
	Argv           []string // command line of one rank: this program, "run", and its arguments
	Environ        []string
	Stdout, Stderr *os.File
	Signals        <-chan os.Signal // forwarded to every rank
}

// RanksHere returns how many ranks this process must start. It returns 0 if the process is a
// rank itself. It returns an error if the host has fewer GPUs than ranks.
func RanksHere(p Place, job *jobs.Job) (int, error) {
	n := job.TasksPerNode()
	torchrun := job.Command != nil && job.Command.Launcher == jobs.LauncherTorchrun
	if !p.PerHost || n == 1 || torchrun {
		return 0, nil
	}
	if job.Slurm.GPUsPerNode > 0 && p.GPUs != launchers.Unknown && n > p.GPUs {
		return 0, fmt.Errorf("the job has %d ranks on each node, one for each GPU, but %s says that this host has %d GPUs", n, p.Launcher, p.GPUs)
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
	end := func(s syscall.Signal) {
		for _, c := range commands {
			_ = syscall.Kill(-c.Process.Pid, s)
		}
	}
	for local := range ranks {
		cmd := exec.Command(o.Argv[0], o.Argv[1:]...)
		cmd.Env = append(withoutTorchrun(o.Environ), "TORCHELASTIC_RUN_ID="+o.Place.Launcher+" "+o.Place.Start)
		for name, n := range map[string]int{
			"RANK": o.Place.Rank*ranks + local, "WORLD_SIZE": o.Place.WorldSize * ranks, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": ranks,
			"GROUP_RANK": o.Place.Rank, "GROUP_WORLD_SIZE": o.Place.WorldSize,
		} {
			cmd.Env = append(without(cmd.Env, name), name+"="+strconv.Itoa(n))
		}
		cmd.Stdout, cmd.Stderr = o.Stdout, o.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := startTied(cmd, &done, syscall.SIGTERM); err != nil {
			end(syscall.SIGKILL)
			done.Wait()
			return exitFailed, fmt.Errorf("start rank %d of this host: %w", local, err)
		}
		commands = append(commands, cmd)
	}
	ended := make(chan struct{})
	go func() { done.Wait(); close(ended) }()
	for {
		select {
		case s := <-o.Signals:
			for _, c := range commands {
				_ = syscall.Kill(c.Process.Pid, s.(syscall.Signal))
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
