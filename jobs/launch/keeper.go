package launch

import (
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// guardScript waits for a line on standard input. If the input ends without a line, because
// the process that holds the pipe died, the script kills its process group, including itself.
const guardScript = `trap '' TERM INT HUP QUIT USR1 USR2; read -r word || kill -s KILL 0`

// newProcessGroup creates a process group for a program. Its first process runs guardScript, which kills
// the group if this process dies before it calls release. The kernel stops the program itself
// when this process dies, but not the workers of the program. Slurm also loses track of the
// workers unless it tracks processes by cgroup. The script starts before the program, because
// the program may kill this process immediately.
func newProcessGroup() (group int, release func(), err error) {
	cmd := exec.Command("/bin/sh", "-c", guardScript)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return 0, func() {}, fmt.Errorf("watch over the program's workers: %w", err)
	}
	return cmd.Process.Pid, func() {
		_, _ = io.WriteString(pipe, "done\n") // the script may have ended with its group
		pipe.Close()
		_ = cmd.Wait()
	}, nil
}
