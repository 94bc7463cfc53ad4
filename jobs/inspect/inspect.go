// Package inspect finds the processes of a run's ranks on this host, and shows what they are
// doing.
//
// A process belongs to a rank if its environment has the ID of the run and a RANK, as
// ddpbatch and torchrun set them. Only the first process of each rank counts, not its
// DataLoader workers or other children.
//
// The stack of a Python program comes from py-spy. The package searches for py-spy in the PATH of
// the Python program, and then in the PATH of the caller. For root, it searches only the PATH of
// the caller. If py-spy is missing or cannot read the process, the kernel's information replaces
// the stack: the state of the main thread and where it waits.
//
// [CollectNodes] reads the ranks on all nodes of a Slurm job. The package does not stop or change
// processes. py-spy pauses
// a process for some milliseconds.
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
	"time"

	"github.com/ddpbatch/ddpbatch/internal/environ"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
	"github.com/ddpbatch/ddpbatch/jobs/process"
)

// Variables that identify the processes of a rank.
const (
	runVariable  = "DDPBATCH_RUN_ID"
	rankVariable = "RANK"
	nodeVariable = "SLURMD_NODENAME"
	// launcherVariable is set in ranks of ddpbatch, but not in the programs that they start.
	launcherVariable = "DDPBATCH_RENDEZVOUS"
)

const (
	stackTimeout = 20 * time.Second // for a process that cannot be read, such as on a hung file system
	maxStack     = 256 << 10        // bytes of py-spy's output
	maxEnviron   = 1 << 20
)

// A Rank is the main process of a rank on this host.
type Rank struct {
	Rank    int    `json:"rank"`
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Command string `json:"command"`
	// Doing is one line: the innermost function of the main thread, or the state of the
	// process.
	Doing  string `json:"doing"`
	Stack  string `json:"stack,omitempty"`  // of all threads, from py-spy
	Source string `json:"source"`           // py-spy or kernel
	Reason string `json:"reason,omitempty"` // why py-spy was not used

	environ []string
}

// Find returns the ranks of the run on this host, sorted by rank. It reads only processes of
// this user. Node is the name of this Slurm node, or empty: several nodes of a test cluster can
// share a host.
func Find(runID, node string) ([]Rank, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	host, _ := os.Hostname()
	found := map[int]Rank{} // by PID
	parents := map[int]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		info, err := os.Stat(filepath.Join("/proc", e.Name()))
		if err != nil {
			continue
		}
		if uid, ok := safefile.Owner(info); !ok || uid != os.Geteuid() {
			continue
		}
		r, ok := readRank(pid, runID)
		if name, set := environ.Lookup(r.environ, nodeVariable); !ok || node != "" && set && name != node {
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
	for pid, r := range found {
		if parent, ok := found[parents[pid]]; !ok || parent.Rank != r.Rank {
			ranks = append(ranks, r)
		}
	}
	slices.SortFunc(ranks, func(a, b Rank) int { return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.PID, b.PID)) })
	return ranks, nil
}

// readRank returns the rank of a process. It returns false if the process does not belong to
// the run.
func readRank(pid int, runID string) (Rank, bool) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	text, err := os.ReadFile(filepath.Join(dir, "environ"))
	if err != nil || len(text) > maxEnviron {
		return Rank{}, false
	}
	env := strings.Split(string(text), "\x00")
	if id, ok := environ.Lookup(env, runVariable); !ok || id != runID {
		return Rank{}, false
	}
	if _, ok := environ.Lookup(env, launcherVariable); ok {
		return Rank{}, false
	}
	value, _ := environ.Lookup(env, rankVariable)
	rank, err := strconv.Atoi(value)
	if err != nil || rank < 0 {
		return Rank{}, false
	}
	command, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil {
		return Rank{}, false
	}
	words := strings.TrimRight(strings.ReplaceAll(string(command), "\x00", " "), " ")
	return Rank{Rank: rank, PID: pid, Command: words, environ: env}, true
}

// Collect finds the ranks of the run on this host and reads what each is doing. Env is the
// environment of this program.
func Collect(ctx context.Context, runID string, env []string) ([]Rank, error) {
	node, _ := environ.Lookup(env, nodeVariable)
	ranks, err := Find(runID, node)
	if err != nil {
		return nil, err
	}
	var wait sync.WaitGroup
	for i := range ranks {
		wait.Go(func() { ranks[i].readStack(ctx, env) })
	}
	wait.Wait()
	return ranks, nil
}

func (r *Rank) readStack(ctx context.Context, env []string) {
	if state := kernelState(r.PID); state == states['T'] || state == states['t'] {
		r.Source, r.Doing = "kernel", state // py-spy would wait for the process
		return
	}
	stack, err := r.pySpy(ctx, env)
	if err == nil {
		r.Stack, r.Source, r.Doing = stack, "py-spy", innermost(stack)
		if r.Doing != "" {
			return
		}
	} else {
		r.Reason = err.Error()
	}
	r.Source, r.Doing = "kernel", kernelState(r.PID)
}

// pySpy returns the output of `py-spy dump`.
func (r *Rank) pySpy(ctx context.Context, env []string) (string, error) {
	path, err := findPySpy(r.environ, env, os.Geteuid())
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

// innermost returns the innermost function of the main thread in py-spy's output, or of the
// first thread if none is called MainThread.
func innermost(dump string) string {
	first := ""
	inMain, expected := false, false
	for line := range strings.Lines(dump) {
		text := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "Thread "):
			expected, inMain = true, strings.Contains(line, "\"MainThread\"")
		case expected && text != "":
			if inMain {
				return text
			}
			if first == "" {
				first = text
			}
			expected = false
		}
	}
	return first
}

// states maps the process states of proc(5) to text.
var states = map[byte]string{
	'R': "running", 'S': "sleeping", 'D': "waiting for a device or a file system", 'T': "stopped by a signal", 't': "stopped by a debugger", 'Z': "ended",
}

// kernelState returns the state of the main thread, with the kernel function in which it waits.
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
	state, ok := states[stat[end+2]]
	if !ok {
		state = "state " + string(stat[end+2])
	}
	if wchan, err := os.ReadFile(filepath.Join(dir, "wchan")); err == nil && len(wchan) > 1 && strings.ContainsRune("SD", rune(stat[end+2])) {
		state += " in the kernel function " + string(wchan)
	}
	return state
}
