package launch

import (
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// guardScript waits for a line on standard input. If the input ends without a line, because
// the process that holds the pipe died, the script kills its process group, including itself.
const guardScript = `trap '' TERM INT HUP QUIT USR1 USR2; read -r word || kill -s KILL 0`

// newProcessGroup creates a process group for a program. Its first process runs guardScript,
// which kills the group if this process dies before it calls release. The kernel stops the
// program itself when this process dies, but not the workers of the program. Slurm also loses
// track of the workers unless it tracks processes by cgroup. The script starts before the
// program, because the program may kill this process immediately.
func newProcessGroup() (group int, release func(), err error) {
	cmd := exec.Command("/bin/sh", "-c", guardScript)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return 0, func() {}, fmt.Errorf("start guard process of the program's workers: %w", err)
	}
	return cmd.Process.Pid, func() {
		_, _ = io.WriteString(pipe, "done\n") // the script may have ended with its group
		pipe.Close()
		_ = cmd.Wait()
	}, nil
}

// signalProgram sends a signal to the processes of a program's group, and to the program itself if it has
// left the group, as setsid(1) does. ended is closed when the program has ended.
func signalProgram(cmd *exec.Cmd, group int, ended <-chan struct{}, s syscall.Signal) {
	_ = syscall.Kill(-group, s)
	select {
	case <-ended:
		return
	default:
	}
	if current, err := syscall.Getpgid(cmd.Process.Pid); err == nil && current != group {
		if current == cmd.Process.Pid {
			_ = syscall.Kill(-current, s)
		}
		_ = cmd.Process.Signal(s)
	}
}

// startWithDeathSignal starts cmd so that the kernel sends it the given signal when this process
// dies. The kernel ties the signal to the thread that started cmd, so startWithDeathSignal locks
// that thread until cmd has ended (PR_SET_PDEATHSIG in prctl(2)).
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
