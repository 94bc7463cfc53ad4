package launch

import (
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	// launcherGrace is how long a launcher such as torchrun may outlive its workers after a
	// stop: its exit barrier waits for the workers of other nodes, which may still save.
	launcherGrace = time.Minute
	// launcherKill is how long it then has to stop: torchrun gives its workers 30 s.
	launcherKill = 35 * time.Second
	// restartCheck is how often it is checked for new workers in that time.
	restartCheck = 2 * time.Second
)

// stopRequest is a request to stop that has reached the processes of a program.
type stopRequest struct {
	pid, group int
	targets    []*process // those that the signal is for
	launchers  []*process // torchrun and others, which the signal is not for
	handled    bool       // one of the targets handles the signal
	empty      bool       // the program is a launcher that has no workers yet
	done       chan struct{}

	mu       sync.Mutex
	statuses []syscall.WaitStatus // of targets that have ended, as far as known
}

// requestStop finds out which processes of a program a stop signal is for, and sends it to
// them, unless Slurm has done so. The rule:
//
//   - A launcher (torchrun and others that set TORCHELASTIC_RUN_ID, accelerate, deepspeed)
//     gets no signal. Each of its workers is treated as a program.
//   - A wrapper (apptainer, uv run, time) gets no signal if what it runs handles the signal,
//     or if it catches the signal itself, as every Go program does.
//   - A shell runs its trap only after its foreground command has ended. So the command is
//     searched as well, unless it runs in the background, where the trap can signal it.
//   - No process below any other program gets the signal: PyTorch's data-loading processes
//     catch SIGTERM, and Go programs catch SIGUSR1, whatever their parents do.
//   - If no process handles the signal, the program itself gets it, and ends.
func requestStop(pid, group int, s syscall.Signal, send bool) *stopRequest {
	r := &stopRequest{pid: pid, group: group, done: make(chan struct{})}
	program, orphans := findProcesses(pid, group)
	r.find(program, orphans, s)
	for _, t := range r.targets {
		r.handled = r.handled || t.handles(s)
		if send {
			_ = syscall.Kill(t.pid, s)
		}
	}
	if send && r.empty {
		_ = syscall.Kill(pid, syscall.SIGTERM)
	}
	var all sync.WaitGroup
	for _, t := range r.targets {
		if t.pid == pid {
			continue // a child of this process, which waits for it
		}
		all.Go(func() {
			status, known := t.await(nil)
			r.mu.Lock()
			defer r.mu.Unlock()
			if known {
				r.statuses = append(r.statuses, status)
			}
		})
	}
	go func() { all.Wait(); close(r.done) }()
	return r
}

// find applies the rule of requestStop.
func (r *stopRequest) find(program *process, orphans []*process, s syscall.Signal) {
	if program == nil || program.ended {
		// A shell without a trap has ended by Slurm's own signal. What it ran goes on.
		for _, o := range orphans {
			r.targets = append(r.targets, r.below(o, s)...)
		}
		return
	}
	r.targets = r.below(program, s)
	if len(r.targets) > 0 {
		return
	}
	if _, r.empty = program.workers(); !r.empty {
		r.targets = []*process{program}
	}
}

// below returns the processes that the signal is for, from p downwards; none if no process
// handles it.
func (r *stopRequest) below(p *process, s syscall.Signal) (targets []*process) {
	if workers, launcher := p.workers(); launcher {
		r.launchers = append(r.launchers, p)
		for _, w := range workers {
			handlers := r.below(w, s)
			if _, nested := w.workers(); len(handlers) == 0 && !nested {
				handlers = []*process{w}
			}
			targets = append(targets, handlers...)
		}
		return targets
	}
	switch {
	case p.ended:
		return nil
	case p.wrapper && len(p.children) > 0:
		for _, c := range p.children {
			targets = append(targets, r.below(c, s)...)
		}
		if len(targets) == 0 && p.handles(s) {
			targets = p.children
		}
		return targets
	case p.handles(s):
		targets = append(targets, p)
	}
	if !p.shell {
		return targets
	}
	foreground := slices.ContainsFunc(p.children, func(c *process) bool { return !c.isBackground(p) })
	for _, c := range p.children {
		if c.isBackground(p) && (p.handles(s) || foreground && c.catchesAll()) {
			continue // the shell's trap decides; a Go program, such as a monitor, does not handle the signal
		}
		targets = append(targets, r.below(c, s)...)
	}
	return targets
}

// endLaunchers stops launchers whose workers have ended: when they start other ones, as
// torchrun does with --max-restarts, and at the latest after launcherGrace. It returns when
// the program has ended.
func (r *stopRequest) endLaunchers(ended <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-r.done:
	}
	if len(r.launchers) == 0 {
		return
	}
	end := time.Now().Add(launcherGrace)
	for !r.restarts() && time.Now().Before(end) {
		select {
		case <-ended:
			return
		case <-time.After(restartCheck):
		}
	}
	r.signalLaunchers(syscall.SIGTERM)
	select {
	case <-ended:
	case <-time.After(launcherKill):
		r.signalLaunchers(syscall.SIGKILL)
	}
}

func (r *stopRequest) signalLaunchers(s syscall.Signal) {
	for _, l := range r.launchers {
		_ = syscall.Kill(l.pid, s)
	}
}

// restarts reports whether a launcher has workers that got no signal.
func (r *stopRequest) restarts() bool {
	var again stopRequest
	program, _ := findProcesses(r.pid, r.group)
	if program == nil {
		return false
	}
	again.find(program, nil, syscall.SIGTERM)
	return slices.ContainsFunc(again.launchers, func(l *process) bool {
		workers, _ := l.workers()
		return slices.ContainsFunc(workers, func(w *process) bool {
			return !w.ended && !slices.ContainsFunc(r.targets, func(t *process) bool { return w.has(t) || t.pid == w.pid })
		})
	})
}

// wait waits until the processes that the signal was for have ended, at most for a time.
func (r *stopRequest) wait(timeout time.Duration) {
	select {
	case <-r.done:
	case <-time.After(timeout):
	}
}

// exit returns the exit code of a program that was asked to stop, whose own is code. A
// launcher ends with its own code when its workers do not end with 0 (torchrun: 1), so
// the workers' codes count: the largest, if all have ended as a stopped program may. How
// a worker ended is known unless the launcher was faster than this process to wait for
// it; such an end counts as that of a stopped worker.
func (r *stopRequest) exit(code int) int {
	if len(r.launchers) == 0 || slices.Contains(stoppedCodes, code) {
		return code
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	largest := 0
	for _, s := range r.statuses {
		c := exitCode(s)
		if !slices.Contains(stoppedCodes, c) {
			return code
		}
		largest = max(largest, c)
	}
	if largest == 0 {
		return exitStopped
	}
	return largest
}
