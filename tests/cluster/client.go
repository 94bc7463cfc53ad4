//go:build linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Env is what a client needs in its environment to find the cluster.
func (c *Cluster) Env() []string {
	return []string{"SLURM_CONF=" + c.dir.slurmEtc("slurm.conf")}
}

// Command returns a command for the login node: a Slurm client, or a program that calls one. It
// has this process's environment and [Cluster.Env]. When the context ends it gets SIGTERM, and
// SIGKILL five seconds later; when this process dies, or the thread of a goroutine that was
// locked to it when it called Start, SIGKILL at once.
func (c *Cluster) Command(ctx context.Context, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(cmd.Environ(), c.Env()...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// OnNode returns a command that runs on a node, in all of its namespaces: it sees the node's
// links, the node's processes and no others, and its host name. It has this process's
// environment and [Cluster.Env] and runs outside any job. When the context or this process ends,
// it gets SIGKILL; its own children do not. Its working directory is this process's; the
// command's Dir has no effect. On a node that does not run, it fails to start.
func (c *Cluster) OnNode(ctx context.Context, node string, argv ...string) *exec.Cmd {
	m := c.running(node)
	if m == nil || node == controlName {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Err = fmt.Errorf("run %s on node %q: the node does not run", argv[0], node)
		return cmd
	}
	dir, err := os.Getwd()
	if err != nil {
		dir = "/"
	}
	enter := []string{"nsenter", "--target", strconv.Itoa(m.pid()), "--mount", "--uts", "--ipc", "--net", "--pid",
		"--wdns=" + dir, "setpriv", "--pdeathsig", "KILL", "--"}
	cmd := c.Command(ctx, append(enter, argv...)...)
	cmd.Cancel = func() error { return cmd.Process.Kill() }
	return cmd
}

// output runs a command and returns what it prints; its error has what it says about it.
func output(cmd *exec.Cmd) (string, error) {
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
		}
		return "", fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return string(out), nil
}

// fields splits one line of "scontrol --oneliner" into its keys and values. A value with a
// space in it ends at the space; no field that this package asks for has one.
func fields(line string) map[string]string {
	f := make(map[string]string)
	for _, word := range strings.Fields(line) {
		if key, value, ok := strings.Cut(word, "="); ok {
			if _, twice := f[key]; !twice {
				f[key] = value
			}
		}
	}
	return f
}
