//go:build linux

package cluster

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// A role is the purpose of a machine. It selects the daemons that the init process starts.
type role string

const (
	roleControl role = "control"
	roleNode    role = "node"
)

const (
	controlName    = "ctl"
	accountingName = "slurmdbd" // its log is next to those of the machines
)

func nodeName(i int) string { return fmt.Sprintf("n%d", i) }

// first is the script of every machine's init process.
//
//go:embed first.sh
var first string

// A machine is a set of namespaces and the processes in it.
type machine struct {
	dir   layout
	name  string
	cmd   *exec.Cmd
	power io.WriteCloser // closing it stops the machine
	gone  chan struct{}  // closed when the last process has exited
}

// plugIn creates the machine with its namespaces. The daemons start at boot, so that the network is
// ready before them.
func plugIn(dir layout, name string, r role, lock *os.File) (*machine, error) {
	console, err := os.OpenFile(dir.console(name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer console.Close()
	if err := os.Remove(dir.ended(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	cmd := exec.Command("/bin/bash", dir.first(), string(dir), name, string(r))
	cmd.Env = []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"LANG=C.UTF-8",
		"HOME=/root",
	}
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = console, console
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true, // Ctrl-C at the terminal is for the test, which then stops the cluster
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWNS |
			syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	power, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("create machine %s: %w", name, err)
	}
	m := &machine{dir: dir, name: name, cmd: cmd, power: power, gone: make(chan struct{})}
	go func() {
		defer close(m.gone)
		_ = cmd.Wait() // a signal or a failed command always ends it, and the console has the reason
	}()
	if err := record(lock, m.pid()); err != nil {
		m.off()
		return nil, fmt.Errorf("record machine %s: %w", name, err)
	}
	return m, nil
}

// pid returns the ID of the machine's init process in the host's namespace.
func (m *machine) pid() int { return m.cmd.Process.Pid }

// boot starts the daemons.
func (m *machine) boot() error {
	if _, err := io.WriteString(m.power, "boot\n"); err != nil {
		return fmt.Errorf("boot machine %s: %w", m.name, err)
	}
	return nil
}

// off stops the machine like a power failure and returns when its last process has exited.
func (m *machine) off() {
	_ = m.cmd.Process.Kill() // an error means that it has exited already
	<-m.gone
	_ = m.power.Close()
}

// failed returns the reason if the machine cannot start because it has stopped or its Slurm daemon
// has exited. Otherwise it returns nil.
func (m *machine) failed() error {
	// If the file is empty, the reason is about to be written.
	if text, err := os.ReadFile(m.dir.ended(m.name)); err == nil && len(text) > 0 {
		return fmt.Errorf("machine %s: %s", m.name, strings.TrimSpace(string(text)))
	}
	select {
	case <-m.gone:
		return fmt.Errorf("machine %s went down", m.name)
	default:
		return nil
	}
}
