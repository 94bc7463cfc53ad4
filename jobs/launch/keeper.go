package launch

import (
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"syscall"
)

// keeperScript waits for a word, or for the death of whoever would have said it.
const keeperScript = `trap '' TERM INT HUP USR1 USR2; read -r word || kill -s KILL -- "-$1"`

// keep has a process group end when this process is killed before release is called. A
// program that is tied to this process ends with it; the workers that it has started
// do not, and unless Slurm tracks processes by cgroup it loses sight of them.
func keep(group int) (release func(), err error) {
	cmd := exec.Command("/bin/sh", "-c", keeperScript, "sh", strconv.Itoa(group))
	// Not in reach of what ends this process's own group.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return func() {}, fmt.Errorf("watch over the program's workers: %w", err)
	}
	return func() {
		_, _ = io.WriteString(pipe, "done\n")
		pipe.Close()
		_ = cmd.Wait()
	}, nil
}
