package launch

import (
	"context"
	"errors"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
)

// localRanks are the ranks on this machine, without Slurm.
type localRanks struct {
	commands []*exec.Cmd
	done     sync.WaitGroup
}

func startLocal(a *attempt) (ranks, error) {
	l := &localRanks{}
	for rank := range a.world {
		cmd := exec.Command(a.o.Binary, "run", "--run-dir", a.o.Dir.Path)
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

// startWithDeathSignal starts cmd so that the kernel sends it the given signal when this process dies.
// The kernel ties the signal to the thread that started cmd, so startWithDeathSignal locks that thread
// until cmd has ended (PR_SET_PDEATHSIG in prctl(2)).
func startWithDeathSignal(cmd *exec.Cmd, done *sync.WaitGroup, signal syscall.Signal) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = signal
	started := make(chan error)
	done.Add(1)
	go func() {
		defer done.Done()
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the caller reads the result from ProcessState
		}
	}()
	return <-started
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
