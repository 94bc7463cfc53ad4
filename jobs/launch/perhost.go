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

// HostOptions say how to start the ranks of one host, where a launcher has started one
// process on each ([Place.PerHost]).
type HostOptions struct {
	Place          Place
	Argv           []string // of one rank: this program, "run", and its arguments
	Environ        []string
	Stdout, Stderr *os.File
	Signals        <-chan os.Signal // passed on to every rank
}

// RanksHere is how many ranks this process is to start: none where it is a rank itself.
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

// RunHost starts so many ranks on this host and waits for them. They find their places
// as torchrun's workers do. It returns the exit code of the first rank, by number, that
// did not end with 0: ranks of one job end together, by their rendezvous.
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
