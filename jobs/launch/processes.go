package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/process"
)

// userProcess is a process of the user's program, as /proc describes it (proc(5)).
type userProcess struct {
	process.Stat

	caught, blocked, ignored uint64 // signal masks of the main thread

	shell     bool
	wrapper   bool   // runs one program and ends with its exit code
	launcher  bool   // starts workers and handles signals for itself, according to its command line
	elasticID string // TORCHELASTIC_RUN_ID, which torchrun sets for its workers
	children  []*userProcess
}

// handles reports whether the process catches s, or blocks it and so may wait for it by
// sigwait(3) or signalfd(2).
func (p *userProcess) handles(s syscall.Signal) bool {
	return (p.caught|p.blocked)&process.Mask(s) != 0
}

// catchesAll reports whether the process catches even signals that programs rarely use. The Go
// runtime does so. The signals that such a process catches do not show which ones it handles.
func (p *userProcess) catchesAll() bool {
	rare := process.Mask(syscall.SIGTRAP) | process.Mask(syscall.SIGSTKFLT) | process.Mask(syscall.SIGXFSZ) | process.Mask(syscall.SIGPWR) | process.Mask(syscall.SIGSYS)
	return p.caught&rare == rare
}

// isBackground reports whether a shell has started the process with "&": POSIX shells
// without job control make such a process ignore SIGINT and SIGQUIT.
func (p *userProcess) isBackground(shell *userProcess) bool {
	both := process.Mask(syscall.SIGINT) | process.Mask(syscall.SIGQUIT)
	return p.ignored&both == both && shell.ignored&both != both
}

// workers returns the children of a launcher that are its workers, and reports whether
// the process is a launcher at all. The environment of a process that has ended is unknown, so it
// does not show whether its children have a new TORCHELASTIC_RUN_ID.
func (p *userProcess) workers() (workers []*userProcess, launcher bool) {
	if p.Ended {
		return nil, false
	}
	for _, c := range p.children {
		if c.elasticID != "" && c.elasticID != p.elasticID {
			workers = append(workers, c)
		}
	}
	if len(workers) == 0 && p.launcher {
		workers = p.children
	}
	return workers, p.launcher || len(workers) > 0
}

// findProcesses returns a program and its descendants as a tree, and the orphans of its
// process group: processes whose parent has ended. The program is nil if it has ended.
func findProcesses(pid, group int) (program *userProcess, orphans []*userProcess) {
	stats, _ := process.All()
	all := map[int]*userProcess{}
	for _, s := range stats {
		all[s.PID] = &userProcess{Stat: s}
	}
	for _, p := range all {
		parent := all[p.Parent]
		if parent != nil {
			parent.children = append(parent.children, p)
		}
		// The first process of the group belongs to ddpbatch, see newProcessGroup.
		if p.Group == group && p.PID != group && p.PID != pid && (parent == nil || parent.Group != group) {
			orphans = append(orphans, p)
		}
	}
	if program = all[pid]; program != nil {
		program.describe()
		// A descendant of the program is not an orphan, whatever its group.
		orphans = slices.DeleteFunc(orphans, func(o *userProcess) bool { return program.contains(o) })
	}
	for _, o := range orphans {
		o.describe()
	}
	return program, orphans
}

// identity identifies a process when /proc is read again later. The start time distinguishes
// it from a later process with the same PID.
type identity struct {
	pid   int
	start uint64
}

func (p *userProcess) identity() identity { return identity{p.PID, p.Start} }

// signal sends a signal to the process. It ignores a process that has ended.
func (p *userProcess) signal(s syscall.Signal) { _ = process.Signal(p.PID, p.Start, s) }

func (p *userProcess) contains(other *userProcess) bool {
	return p == other || slices.ContainsFunc(p.children, func(c *userProcess) bool { return c.contains(other) })
}

// describe reads the facts that the rule for stop signals needs, for p and its descendants.
// Facts that cannot be read stay empty: the process has ended or belongs to another user.
func (p *userProcess) describe() {
	file := func(name string) string {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.PID, name))
		return string(text)
	}
	if s, err := process.ReadSignals(fmt.Sprintf("/proc/%d/status", p.PID)); err == nil {
		p.caught, p.blocked, p.ignored = s.Caught, s.Blocked, s.Ignored
	}
	exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.PID))
	p.shell = slices.Contains(shells, filepath.Base(exe))
	argv := strings.Split(file("cmdline"), "\x00")
	p.launcher, p.wrapper = isLauncher(argv), isWrapper(argv)
	p.elasticID, _ = lookupIn(strings.Split(file("environ"), "\x00"))("TORCHELASTIC_RUN_ID")
	if now, err := process.Read(p.PID); err != nil || now.Start != p.Start || now.Ended {
		p.Ended = true // perhaps while its files were read
	}
	for _, c := range p.children {
		c.describe()
	}
}

var shells = []string{"bash", "dash", "sh", "ash", "ksh", "ksh93", "mksh", "zsh", "busybox", "tcsh", "csh", "fish"}

// launcherNames are scripts and modules that start workers and end with their own exit code.
var launcherNames = []string{"torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "accelerate.commands.launch",
	"accelerate.commands.accelerate_cli", "deepspeed", "deepspeed.launcher.runner", "deepspeed.launcher.launch"}

// isLauncher reports whether a command line starts a launcher, directly or through Python.
func isLauncher(argv []string) bool {
	name, _ := commandName(argv)
	return slices.Contains(launcherNames, name)
}

// wrapperNames are programs that run one other program and end with its exit code. Some of
// them replace themselves with that program, and are visible only before.
var wrapperNames = []string{"env", "nice", "ionice", "nohup", "taskset", "numactl", "time", "timeout", "stdbuf", "setsid", "chrt", "strace",
	"nsys", "ncu", "tini", "dumb-init", "apptainer", "singularity", "ch-run", "starter", "starter-suid", "appinit", "sinit",
	"Apptainer runtime parent", "Singularity runtime parent"}

// runnerNames are programs that are wrappers if they are called with "run", as in "uv run".
var runnerNames = []string{"uv", "conda", "mamba", "micromamba", "pixi", "poetry", "pdm", "pipenv"}

// isWrapper reports whether a command line starts a wrapper.
func isWrapper(argv []string) bool {
	name, arguments := commandName(argv)
	return slices.Contains(wrapperNames, name) || slices.Contains(runnerNames, name) && slices.Contains(arguments, "run")
}

// commandName returns the name of the program, script, or Python module of a command line,
// and its arguments.
func commandName(argv []string) (name string, arguments []string) {
	for i, a := range argv {
		switch {
		case i == 0 && jobs.IsPython(a):
		case a == "-m" && i+1 < len(argv):
			return argv[i+1], argv[i+2:]
		case strings.HasPrefix(a, "-") && i > 0:
		default:
			return filepath.Base(a), argv[i+1:]
		}
	}
	return "", nil
}

// endCheckInterval is the interval at which waitForEnd checks whether a process has ended, if the
// kernel cannot report it (pidfd_open(2) needs Linux 5.3).
const endCheckInterval = 20 * time.Millisecond

// waitForEnd waits until the process has ended or done is closed. Known reports whether status is
// valid: the status can be read only until the parent of the process has waited for it.
func (p *userProcess) waitForEnd(done <-chan struct{}) (status syscall.WaitStatus, known bool) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err == nil {
		defer unix.Close(fd)
	}
	for {
		stat, readErr := process.Read(p.PID)
		switch {
		case readErr != nil || stat.Start != p.Start:
			return 0, false
		case stat.Ended:
			return stat.Status, true
		}
		select {
		case <-done:
			return 0, false
		default:
		}
		if err == nil {
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 500)
		} else {
			time.Sleep(endCheckInterval)
		}
	}
}
