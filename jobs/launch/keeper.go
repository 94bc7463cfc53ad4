package launch

import (
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// keeperScript waits for a word, or for the death of whoever would have said it, and then
// ends its process group, itself included.
const keeperScript = `trap '' TERM INT HUP QUIT USR1 USR2; read -r word || kill -s KILL 0`

// keep makes a process group for a program, which ends when this process is killed before
// release is called. A program that is tied to this process ends with it; the workers that
// it has started do not, and unless Slurm tracks processes by cgroup it loses sight of
// them. What makes the group is there before the program, which may kill this process as
// the first thing that it does.
func keep() (group int, release func(), err error) {
	cmd := exec.Command("/bin/sh", "-c", keeperScript)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return 0, func() {}, fmt.Errorf("watch over the program's workers: %w", err)
	}
	return cmd.Process.Pid, func() {
		_, _ = io.WriteString(pipe, "done\n") // it may have ended with its group
		pipe.Close()
		_ = cmd.Wait()
	}, nil
}
