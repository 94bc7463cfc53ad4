// Package inspect finds the processes of a run's ranks on this host, and shows what they are
// doing.
//
// A process belongs to a rank if its environment has the ID of the run and a RANK, as
// ddpbatch and torchrun set them. Only the first process of each rank counts, not its
// DataLoader workers or other children. If it is a shell or a wrapper that has started Python,
// the Python process counts instead.
//
// The stack of a Python program comes from the first of these sources that works:
//
//   - py-spy, which pauses a process for some milliseconds. The package searches for py-spy in the
//     PATH of the Python program, and then in the PATH of the caller. For root, it searches only
//     the PATH of the caller.
//   - Python's faulthandler module, if the program has registered it for a signal and for a file
//     with the name of this signal. No signal is sent to a process that does not handle it.
//   - The kernel: the state of the main thread and where it waits.
//
// NCCL's RAS service adds the view of NCCL, if a rank serves it on this host.
//
// [Search.OnNodes] reads the ranks on all nodes of a Slurm job. The package does not stop or change
// processes.
package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/environ"
	"github.com/ddpbatch/ddpbatch/jobs/process"
)

// rankVariables are the variables of a rank that a command next to it may need. None is secret.
// Without MASTER_ADDR and MASTER_PORT, the command cannot join the ranks by accident.
var rankVariables = []string{process.RankVariable, "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK",
	"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}

const (
	stackTimeout = 20 * time.Second // for a process that cannot be read, such as on a hung file system
	maxStack     = 256 << 10        // bytes of the stacks of a rank

	// A rank counts as running only if it is running in each of kernelSamples samples.
	kernelSamples        = 3
	kernelSampleInterval = 50 * time.Millisecond
)

// stoppedBy begins the text about a process that a signal or a debugger has stopped.
const stoppedBy = "stopped by "

// A Rank is the main process of a rank on this host.
type Rank struct {
	Rank    int    `json:"rank"`
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Command string `json:"command"`
	// Doing is one line: the innermost function of the main thread, or the state of the
	// process.
	Doing  string `json:"doing"`
	Stack  string `json:"stack,omitempty"`  // of all threads, from py-spy or faulthandler
	Source string `json:"source,omitempty"` // py-spy, faulthandler, or kernel
	Reason string `json:"reason,omitempty"` // why there is no stack
	// Variables are the variables of the rank that a command next to it may need.
	Variables map[string]string `json:"variables,omitempty"`
	// RAS is the answer of NCCL's RAS service about all ranks, if this rank serves it.
	RAS string `json:"nccl_ras,omitempty"`

	environ []string
}

// Find returns the ranks of the run on this host, sorted by rank, without what they are doing. It
// reads only processes of this user. Node is the name of this Slurm node, which may differ from the host
// name, or empty for all ranks of the host. Several nodes of a test cluster can share a host.
func Find(runID, node string) ([]Rank, error) {
	pids, err := process.IDs()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	host := node
	if host == "" {
		host, _ = os.Hostname()
	}
	found := map[int]Rank{} // by PID
	parents := map[int]int{}
	for _, pid := range pids {
		r, ok := readRank(pid, process.Run{ID: runID, Node: node})
		if !ok {
			continue
		}
		stat, err := process.Read(pid)
		if err != nil || stat.Ended {
			continue
		}
		r.Host = host
		found[pid], parents[pid] = r, stat.Parent
	}
	var ranks []Rank
	children := map[int][]Rank{} // of the same rank, by PID
	for pid, r := range found {
		if parent, ok := found[parents[pid]]; !ok || parent.Rank != r.Rank {
			ranks = append(ranks, r)
		} else {
			children[parent.PID] = append(children[parent.PID], r)
		}
	}
	for i := range ranks {
		ranks[i] = findPython(ranks[i], children)
	}
	slices.SortFunc(ranks, func(a, b Rank) int { return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.PID, b.PID)) })
	return ranks, nil
}

// findPython returns the Python process that a shell or a wrapper has started, or r if r runs
// Python itself or if it has not started exactly one.
func findPython(r Rank, children map[int][]Rank) Rank {
	for level := []Rank{r}; len(level) > 0; {
		var python, next []Rank
		for _, p := range level {
			if isPython(p.Command) {
				python = append(python, p)
			}
			next = append(next, children[p.PID]...)
		}
		switch len(python) {
		case 0:
			level = next
		case 1:
			return python[0]
		default:
			return r
		}
	}
	return r
}

// isPython reports whether a command line starts Python.
func isPython(command string) bool {
	word, _, _ := strings.Cut(command, " ")
	return strings.HasPrefix(filepath.Base(word), "python")
}

// readRank returns the rank of a process. It returns false if the process does not belong to
// the run.
func readRank(pid int, run process.Run) (Rank, bool) {
	rank, env, ok := run.Rank(pid)
	if !ok {
		return Rank{}, false
	}
	command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return Rank{}, false
	}
	words := strings.TrimRight(strings.ReplaceAll(string(command), "\x00", " "), " ")
	r := Rank{Rank: rank, PID: pid, Command: words, Variables: map[string]string{}, environ: env}
	for _, name := range rankVariables {
		if value, ok := environ.Lookup(env, name); ok {
			r.Variables[name] = value
		}
	}
	return r, true
}

// A Search finds the ranks of a run and reads what each is doing.
type Search struct {
	RunID    string
	Env      []string // environment of this program
	FindOnly bool     // do not read what the ranks are doing
}

// OnHost returns the ranks on this host. If the environment names a Slurm node, it returns only the
// ranks of this node.
func (s Search) OnHost(ctx context.Context) ([]Rank, error) {
	node, _ := environ.Lookup(s.Env, process.NodeVariable)
	ranks, err := Find(s.RunID, node)
	if err != nil || s.FindOnly {
		return ranks, err
	}
	var wait sync.WaitGroup
	for i := range ranks {
		wait.Go(func() { ranks[i].readStack(ctx, s.Env) })
	}
	wait.Go(func() { queryRAS(ctx, ranks, s.Env) })
	wait.Wait()
	return ranks, nil
}

// readStack sets what the rank is doing.
func (r *Rank) readStack(ctx context.Context, env []string) {
	r.Source = sourceKernel
	if r.Doing = kernelState(r.PID); strings.HasPrefix(r.Doing, stoppedBy) {
		return // py-spy would wait for the process
	}
	stack, err := r.pySpy(ctx, env)
	if err == nil && r.setStack(stack, sourcePySpy) {
		return
	}
	stack, faultErr := r.faulthandler(ctx)
	if faultErr == nil && r.setStack(stack, sourceFaulthandler) {
		return
	}
	if err != nil && faultErr != nil {
		r.Reason = err.Error() + ", and " + faultErr.Error()
	}
	r.Doing = kernelState(r.PID)
	for i := 1; i < kernelSamples && r.Doing == states['R']; i++ {
		// A thread that waits may wake up for a moment.
		time.Sleep(kernelSampleInterval)
		r.Doing = kernelState(r.PID)
	}
}

// setStack sets the stack of the rank. It returns false if the stack has no frame of Python.
func (r *Rank) setStack(stack, source string) bool {
	frames := mainThread(stack, source)
	if len(frames) == 0 {
		return false
	}
	r.Stack, r.Source, r.Doing = stack, source, frames[0]
	return true
}

// pySpy returns the output of `py-spy dump`.
func (r *Rank) pySpy(ctx context.Context, env []string) (string, error) {
	program := r.environ
	if !sharesFiles(r.PID) {
		program = nil
	}
	path, err := findPySpy(program, env, os.Geteuid())
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, stackTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "dump", "--pid", strconv.Itoa(r.PID))
	cmd.Env = env
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) && len(exit.Stderr) > 0 {
			lines := strings.Split(strings.TrimSpace(string(exit.Stderr)), "\n")
			return "", fmt.Errorf("py-spy: %s", lines[0])
		}
		return "", fmt.Errorf("py-spy: %w", err)
	}
	return string(out[:min(len(out), maxStack)]), nil
}

// sharesFiles reports whether a process has the mount namespace and the root directory of this process.
// In a container, its PATH names directories of the image, which may belong to other users outside.
func sharesFiles(pid int) bool {
	for _, name := range []string{"ns/mnt", "root"} {
		own, err := os.Readlink(filepath.Join("/proc/self", name))
		if err != nil {
			return false
		}
		if other, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), name)); err != nil || other != own {
			return false
		}
	}
	return true
}

// findPySpy returns the path of py-spy. It searches the PATH of the program, and then the PATH
// of this process.
//
// For root, it does not search the PATH of the program. Processes of root include setuid
// programs such as su, whose environment comes from the user who started them.
func findPySpy(program, env []string, uid int) (string, error) {
	if uid == 0 {
		path, err := environ.LookPath(env, "py-spy")
		if err != nil {
			return "", errors.New("py-spy is not in the PATH of root")
		}
		return path, nil
	}
	path, err := environ.LookPath(program, "py-spy")
	if err != nil {
		path, err = environ.LookPath(env, "py-spy")
	}
	if err != nil {
		return "", errors.New("py-spy is not installed")
	}
	return path, nil
}

// states maps the process states of proc(5) to text.
var states = map[byte]string{
	'R': "running", 'S': "sleeping", 'D': "waiting for a device or a file system", 'T': stoppedBy + "a signal", 't': stoppedBy + "a debugger", 'Z': "ended",
}

// kernelState returns the state of the main thread, with the kernel function in which it waits or
// the signal that has stopped it.
func kernelState(pid int) string {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return "ended"
	}
	end := strings.LastIndexByte(string(stat), ')')
	if end < 0 || end+2 >= len(stat) {
		return "unknown"
	}
	letter := stat[end+2]
	if letter == 'T' {
		// Linux before 5.19 does not have the signal here.
		if p, err := process.Parse(stat); err == nil && unix.SignalName(syscall.Signal(p.Status)) != "" {
			return stoppedBy + unix.SignalName(syscall.Signal(p.Status))
		}
	}
	wchan, _ := os.ReadFile(filepath.Join(dir, "wchan"))
	return describeState(letter, string(wchan))
}

// vforkFunctions are the kernel functions in which a process waits, after vfork, until the new process
// has replaced its program: in wchan of current and older versions of Linux.
var vforkFunctions = []string{"kernel_clone", "_do_fork", "do_fork", "wait_for_vfork_done"}

// describeState describes a state by its letter and the kernel function in which the thread waits. The
// function is empty or "0" if the kernel does not show it.
func describeState(letter byte, function string) string {
	state, ok := states[letter]
	switch {
	case !ok:
		return "state " + string(letter)
	case letter == 'D' && slices.Contains(vforkFunctions, function):
		return "waiting until a new process has started its program"
	case len(function) > 1 && (letter == 'S' || letter == 'D'):
		return state + " in the kernel function " + function
	}
	return state
}
