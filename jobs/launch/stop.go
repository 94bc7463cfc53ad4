package launch

import (
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	// launcherExitTimeout is how long a launcher such as torchrun may outlive its workers after a
	// stop. Its exit barrier waits for the workers of other nodes, which may still be saving.
	launcherExitTimeout = time.Minute
	// launcherStopTimeout is how long the launcher then has to stop. torchrun gives its workers
	// 30 s.
	launcherStopTimeout = 35 * time.Second
	// restartCheckInterval is the interval between checks for new workers during that time.
	restartCheckInterval = 2 * time.Second
)

// stopRequest is a stop request that has been sent to the processes of a program.
type stopRequest struct {
	pid, group int
	signal     syscall.Signal
	targets    []*userProcess    // processes that the signal is for
	launchers  []*userProcess    // torchrun and similar launchers, which the signal is not for
	handled    bool              // at least one target handles the signal
	failed     bool              // a worker of torchrun had failed before the request
	noWorkers  bool              // the program is a launcher without workers
	signaled   map[identity]bool // workers of the launchers that have received the signal
	done       chan struct{}     // closed when all targets have ended
	codes      stopCodes         // exit codes of a program that has stopped on request

	mu       sync.Mutex
	statuses []syscall.WaitStatus // of targets that have ended, as far as known
}

// requestStop determines which processes of a program a stop signal is for. It sends the
// signal to them, unless send is false because Slurm has already sent it. The rules:
//
//   - A launcher (torchrun and others that set TORCHELASTIC_RUN_ID, accelerate, deepspeed)
//     does not get the signal. Each of its workers is treated as a program. A launcher without
//     workers gets SIGTERM.
//   - A wrapper (apptainer, uv run, time) does not get the signal if the program that it runs
//     handles the signal, or if the wrapper catches the signal itself, as every Go program
//     does.
//   - A shell runs its trap only after its foreground command has ended. Therefore the
//     foreground command is also searched. A background command is not searched if the trap can
//     signal it.
//   - No process below any other program gets the signal. PyTorch's data-loading processes
//     catch SIGTERM, and Go programs catch SIGUSR1, regardless of their parents.
//   - If no process handles the signal, the program itself gets it and ends.
func requestStop(pid, group int, s syscall.Signal, send bool) *stopRequest {
	r := &stopRequest{pid: pid, group: group, signal: s, signaled: map[identity]bool{}, done: make(chan struct{})}
	program, orphans := findProcesses(pid, group)
	r.findTargets(program, orphans)
	for _, t := range r.targets {
		r.handled = r.handled || t.handles(s)
		if send {
			t.signal(s)
		}
	}
	if send && r.noWorkers {
		program.signal(syscall.SIGTERM)
	}
	for _, w := range r.workers() {
		r.signaled[w.identity()] = true
	}
	var all sync.WaitGroup
	for _, t := range r.targets {
		if t.PID == pid {
			continue // a child of this process, which waits for it elsewhere
		}
		all.Go(func() {
			status, known := t.waitForEnd(nil)
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

// findTargets applies the rules of requestStop.
func (r *stopRequest) findTargets(program *userProcess, orphans []*userProcess) {
	if program == nil || program.Ended {
		// Slurm's own signal has ended a shell without a trap. The commands of the shell
		// continue. Those that were read before the shell ended still have it as their parent.
		if program != nil {
			orphans = slices.Concat(orphans, program.children)
		}
		for _, o := range orphans {
			r.targets = append(r.targets, r.findHandlers(o)...)
		}
		return
	}
	r.targets = r.targetsOf(program)
	r.noWorkers = len(r.targets) == 0
}

// targetsOf returns the processes of a program or worker that the signal is for. It returns the
// program itself if no process handles the signal, and nil for a launcher without workers.
func (r *stopRequest) targetsOf(p *userProcess) []*userProcess {
	targets := r.findHandlers(p)
	if _, launcher := p.workers(); len(targets) == 0 && !launcher {
		targets = []*userProcess{p}
	}
	return targets
}

// findHandlers returns the processes that the signal is for among p and its descendants. It
// returns nil if no process handles the signal.
func (r *stopRequest) findHandlers(p *userProcess) (targets []*userProcess) {
	if workers, launcher := p.workers(); launcher {
		r.launchers = append(r.launchers, p)
		for _, w := range workers {
			targets = append(targets, r.targetsOf(w)...)
		}
		return targets
	}
	switch {
	case p.Ended: // perhaps meanwhile: its children are still running
		for _, c := range p.children {
			targets = append(targets, r.findHandlers(c)...)
		}
		return targets
	case p.wrapper && len(p.children) > 0:
		for _, c := range p.children {
			targets = append(targets, r.findHandlers(c)...)
		}
		if len(targets) == 0 && p.handles(r.signal) {
			targets = p.children
		}
		return targets
	case p.handles(r.signal):
		targets = append(targets, p)
	}
	if !p.shell {
		return targets
	}
	foreground := slices.ContainsFunc(p.children, func(c *userProcess) bool { return !c.isBackground(p) })
	for _, c := range p.children {
		if c.isBackground(p) && (p.handles(r.signal) || foreground && c.catchesAll()) {
			continue // the shell's trap decides; a Go program, such as a monitor, does not handle the signal
		}
		targets = append(targets, r.findHandlers(c)...)
	}
	return targets
}

// stopLaunchers signals workers that launchers start while other workers still save. It then
// stops the launchers whose workers have ended: when they start new workers, as torchrun does
// with --max-restarts, and after launcherExitTimeout at the latest. It returns when the program
// has ended, or after it has killed the launchers.
func (r *stopRequest) stopLaunchers(ended <-chan struct{}) {
	if len(r.launchers) == 0 {
		return
	}
	var end time.Time
	for r.signalNewWorkers(&end) {
		select {
		case <-ended:
			return
		case <-time.After(restartCheckInterval):
		}
	}
	r.signalLaunchers(syscall.SIGTERM)
	select {
	case <-ended:
	case <-time.After(launcherStopTimeout):
		r.signalLaunchers(syscall.SIGKILL)
	}
}

// signalNewWorkers sends the signal to workers that have not received it, if workers that have
// received it are still running. It reports whether the launchers may continue. When the last worker
// has ended, it sets end to the time until which the launchers may continue.
func (r *stopRequest) signalNewWorkers(end *time.Time) bool {
	rescan := stopRequest{signal: r.signal}
	if program, _ := findProcesses(r.pid, r.group); program != nil {
		rescan.findTargets(program, nil)
	}
	signaled, unsignaled := r.split(rescan.workers())
	switch {
	case len(signaled) > 0:
		*end = time.Time{}
		for _, w := range unsignaled {
			r.signaled[w.identity()] = true
			for _, t := range rescan.targetsOf(w) {
				t.signal(r.signal)
			}
		}
		return true
	case len(unsignaled) > 0 && !r.noWorkers:
		return false
	case end.IsZero():
		*end = time.Now().Add(launcherExitTimeout)
	}
	return time.Now().Before(*end)
}

// workers returns the running workers of the launchers. It excludes workers that are
// launchers.
func (r *stopRequest) workers() (workers []*userProcess) {
	for _, l := range r.launchers {
		all, _ := l.workers()
		for _, w := range all {
			if _, nested := w.workers(); !nested && !w.Ended {
				workers = append(workers, w)
			}
		}
	}
	return workers
}

// split separates workers by whether they have received the signal.
func (r *stopRequest) split(workers []*userProcess) (signaled, unsignaled []*userProcess) {
	for _, w := range workers {
		if r.signaled[w.identity()] {
			signaled = append(signaled, w)
		} else {
			unsignaled = append(unsignaled, w)
		}
	}
	return signaled, unsignaled
}

func (r *stopRequest) signalLaunchers(s syscall.Signal) {
	for _, l := range r.launchers {
		l.signal(s)
	}
}

// wait waits until the processes that the signal is for have ended, or the timeout has
// expired.
func (r *stopRequest) wait(timeout time.Duration) {
	select {
	case <-r.done:
	case <-time.After(timeout):
	}
}

// resultCode returns the exit code of a program that was asked to stop and that ended with code.
//
// If the program is a launcher such as torchrun, and its workers do not end with 0, code is the
// launcher's own: 1, or 143 if Slurm's SIGTERM killed it. Then the codes of the workers count:
//
//   - If a worker ended with 3, the result is 3. torchrun then stopped the other workers with SIGTERM.
//   - Otherwise it is the largest code.
//   - A code is unknown if the launcher waited for the worker before this process could read the
//     code. The worker then counts as stopped.
//
// The result is code if a worker failed, before or after the stop request.
func (r *stopRequest) resultCode(code int) int {
	if code = r.codes.normalize(code); len(r.launchers) == 0 || r.failed || code == 0 || code == exitStopped {
		return code
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.statuses) == 0 && r.codes.has(code) {
		return code
	}
	var codes []int
	for _, s := range r.statuses {
		codes = append(codes, r.codes.normalize(exitCode(s)))
	}
	result, stopped := r.codes.combine(codes)
	switch {
	case !stopped:
		return code
	case result == 0:
		return exitStopped
	}
	return result
}

// receivedStop returns the stop signal that may have ended a program, if Slurm also sends it to this
// process. This process may notice the end of the program before it receives the signal. So
// receivedStop waits for the signal for a short time, unless the program ended with 0 or the
// attempt is aborted.
func receivedStop(state *os.ProcessState, signals <-chan os.Signal, aborted, done <-chan struct{}) (s os.Signal, ok bool) {
	status := state.Sys().(syscall.WaitStatus)
	delay := signalDelay
	switch {
	case status == 0:
		return nil, false
	case isStopCode(exitCode(status)):
		delay = stopSignalDelay
	}
	select {
	case s = <-signals:
		return s, true
	case <-aborted:
		return nil, false
	case <-done:
		return nil, false
	case <-time.After(delay):
		return nil, false
	}
}

const (
	// signalDelay is how much later than the program this process may receive a signal.
	signalDelay = 100 * time.Millisecond
	// stopSignalDelay is the delay if a stop signal seems to have ended the program.
	// slurmstepd signals the processes one after another, and the node may be busy.
	stopSignalDelay = 5 * time.Second
	// workerCodeTimeout is how long to wait for the exit codes of workers after the program has
	// ended.
	workerCodeTimeout = 5 * time.Second
	// minOrphanTimeout is the minimum time to wait for processes that handle the stop signal
	// and outlive their wrapper. Some never end, such as a monitor in the background.
	minOrphanTimeout = 2 * time.Minute
)

// exitCode returns the exit code of a process, as a shell reports it.
func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}
