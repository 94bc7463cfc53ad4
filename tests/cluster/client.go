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

// Env returns the environment variables that a client needs to find the cluster.
func (c *Cluster) Env() []string {
	return []string{"SLURM_CONF=" + c.dir.slurmEtc("slurm.conf")}
}

// Command returns a command for the login node: a Slurm client, or a program that calls one. It has
// this process's environment and [Cluster.Env]. When the context ends, the command gets SIGTERM,
// and SIGKILL five seconds later. It gets SIGKILL immediately if this process dies, or if the
// thread dies on which a locked goroutine called Start.
func (c *Cluster) Command(ctx context.Context, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(cmd.Environ(), c.Env()...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// OnNode returns a command that runs on a node, in all of its namespaces: it sees the node's links,
// only the node's processes, and the node's host name. It has this process's environment and
// [Cluster.Env] and runs outside of jobs. When the context or this process ends, the command gets
// SIGKILL, but its children do not get it. Its working directory is this process's. The command's
// Dir has no effect. On a node that is not running, the command fails to start.
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

// output runs a command and returns its standard output. An error contains the command's standard
// error.
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

// fields splits a line of "scontrol --oneliner" into keys and values. A value that contains a space
// ends at the space. No field that this package reads contains one.
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
