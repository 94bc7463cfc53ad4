package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/safefile"
	"github.com/ddpbatch/ddpbatch/jobs"
)

// ProgramOptions describe how to run the user's program as one rank.
type ProgramOptions struct {
	Environ        []string
	Stdout, Stderr *os.File
	// Signals delivers the signals that this process receives.
	Signals <-chan os.Signal
	// Say receives messages for the user, one line at a time.
	Say func(line string)
}

// Program runs the job's command as this rank. The command finds the same variables as under
// torchrun, and needs no change for Slurm. Program returns the command's exit code, or 128
// plus the signal number if a signal killed it. It returns an error if the command cannot start, if
// it fails without a stop request, or if ddpbatch kills it. The exit code is then never 0.
func (r *Rank) Program(ctx context.Context, o ProgramOptions) (exit int, err error) {
	host, port, err := r.agreeOnMaster(ctx)
	if err != nil {
		return 1, err
	}
	once, err := r.prepareOnce(o)
	if err != nil {
		return 1, err
	}
	defer once.close()
	environ, err := r.programEnviron(ctx, o, host, port)
	if err != nil {
		return 1, err
	}
	environ = once.setVariables(environ)
	workdir, dir, closeDir, err := r.openWorkdir(o)
	if err != nil {
		return 1, err
	}
	defer closeDir()
	components, err := r.startComponents(ctx, o, environ, dir, port)
	defer func() { components.stop(err != nil) }()
	if errors.Is(err, errStopRequested) {
		// The programs of other ranks may have started, and may need the components to save.
		if err = components.awaitPrograms(ctx); err != nil {
			return exitFailed, err
		}
		o.Say("stopped before the program started")
		return exitStopped, nil
	}
	if err != nil {
		return 1, err
	}
	cmd, name, err := r.programCommand(components.setVariables(environ), host, workdir)
	if err != nil {
		return 1, err
	}
	defer r.captureOutput(&o)()
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, o.Stdout, o.Stderr
	guard := r.newPortGuard(host, port)
	if err := guard.checkUnused(); err != nil {
		return exitLost, err
	}
	p := &userProgram{r: r, o: o, name: name, cmd: cmd, ended: make(chan struct{}), guard: guard, components: components}
	return p.run(ctx, workdir)
}

// openWorkdir returns the path of the program's working directory, and the directory in which the
// program starts. The two differ for a snapshot of the user's code, which stays open until the caller
// calls release.
func (r *Rank) openWorkdir(o ProgramOptions) (workdir, dir string, release func(), err error) {
	configured := string(r.job.Command.Workdir)
	workdir, ok := lookupIn(o.Environ)(envWorkdir)
	if !ok {
		workdir = configured
	}
	if !r.job.Command.Snapshot || workdir == configured {
		return workdir, workdir, func() {}, nil
	}
	snapshot, err := openSnapshot(workdir)
	if err != nil {
		return "", "", nil, err
	}
	path, ok := safefile.DescriptorPath(snapshot)
	if !ok {
		path = workdir
	}
	return workdir, path, func() { snapshot.Close() }, nil
}

// programCommand returns the command that runs the program, and the program's name for messages.
func (r *Rank) programCommand(environ []string, host, workdir string) (cmd *exec.Cmd, name string, err error) {
	argv, err := r.programArgv(environ, host, workdir)
	if err != nil {
		return nil, "", err
	}
	name = argv[0]
	if r.insideSetup() != "" {
		name = string(r.job.Command.Argv[0])
		if argv, err = r.setupArgv(environ, argv); err != nil {
			return nil, "", err
		}
	}
	cmd = exec.Command(argv[0])
	cmd.Args, cmd.Env = argv, environ
	return cmd, name, nil
}

// setupArgv returns a command line that runs the steps of [setup] in this rank before argv. "ddpbatch
// start" then finds the program like [lookPath]: bash would also search relative directories of PATH.
func (r *Rank) setupArgv(environ, argv []string) ([]string, error) {
	bash, err := lookPath(environ, "bash")
	if err != nil {
		return nil, err
	}
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return append([]string{bash, "-c", r.insideSetup() + "exec " + jobs.ShellQuote(binary) + " start -- \"$@\"", "setup"}, argv...), nil
}

// A userProgram is the process of the user's program.
type userProgram struct {
	r          *Rank
	o          ProgramOptions
	name       string // for messages
	cmd        *exec.Cmd
	group      int           // process group
	ended      chan struct{} // closed when the process has ended
	guard      *portGuard
	components *components

	stop    *stopRequest     // nil without a stop request
	overdue <-chan time.Time // receives if the program exceeds command.stop_grace
}

// run starts the program, waits until it has ended, and returns the result of [Rank.Program].
func (p *userProgram) run(ctx context.Context, workdir string) (exit int, err error) {
	// A separate process group allows ddpbatch to kill the program together with its workers.
	group, release, err := newProcessGroup()
	if err != nil {
		p.o.Say(fmt.Sprintf("warning: %s: %v", p.r.Info.Host, err))
	}
	defer release()
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: group}
	var done sync.WaitGroup
	if err := startWithDeathSignal(p.cmd, &done, syscall.SIGKILL); err != nil {
		return 1, explainStartError(p.cmd.Args[0], workdir, err)
	}
	p.group = cmp.Or(group, p.cmd.Process.Pid)
	go func() { done.Wait(); close(p.ended) }()
	p.guard.watch(p.ended)
	if p.r.job.Command.Launcher == jobs.LauncherTorchrun {
		go p.r.watchWorkers(p.cmd.Process.Pid, p.ended)
	}
	defer p.r.measureUsage(p.o, p.cmd.Env)()
	killCause := p.supervise(ctx)
	// Workers that the program left behind would hold memory, ports, and GPUs.
	_ = syscall.Kill(-p.group, syscall.SIGKILL)
	var component componentError
	if errors.As(killCause, &component) {
		return exitFailed, killCause
	}
	if killCause != nil {
		return exitLost, killCause
	}
	if p.stop != nil {
		p.stop.wait(workerCodeTimeout)
		if !p.stop.handled {
			p.r.Session.NoteUnhandledStop()
		}
	}
	if exit, err = exitResult(p.name, p.cmd.ProcessState, p.stop); err != nil {
		return exit, p.guard.explain(err)
	}
	if err := p.components.awaitPrograms(ctx); err != nil {
		return exitFailed, err
	}
	return exit, nil
}

// orphanTimeout returns how long supervise waits for processes that outlive a stopped program. The
// time is long enough to save, and leaves time for the requeue before the time limit.
func (p *userProgram) orphanTimeout() time.Duration {
	return max(minOrphanTimeout, time.Duration(p.r.job.Slurm.SignalBeforeEnd)/2)
}

// supervise forwards stop signals until the program has ended. It kills the program if the attempt
// fails, if a component fails, if guard finds that another user has the program's port, or if the
// program does not end within command.stop_grace. It returns the first cause if it killed the program.
//
// A stop signal ends a shell without a trap, but not the commands of the shell. If the signal has
// ended the program, supervise also waits for the processes that the signal was for, at most for
// orphanTimeout.
func (p *userProgram) supervise(ctx context.Context) (killCause error) {
	r, guard := p.r, p.guard
	stopping, aborted, done, taken := r.Session.Stopping(), r.Session.Context().Done(), ctx.Done(), guard.takenDuringWatch()
	failing := p.components.failing()
	running := (<-chan struct{})(p.ended)
	var orphans <-chan struct{}
	var limit <-chan time.Time
	for {
		select {
		case <-running:
			running = nil
			if killCause != nil {
				return killCause
			}
			if p.stop == nil {
				if s, ok := receivedStop(p.cmd.ProcessState, p.o.Signals, aborted, done); ok {
					p.requestStop(s.(syscall.Signal), false)
				}
			}
			if p.stop == nil || !stopCodesOf(r.job).isSignal(exitCode(p.cmd.ProcessState.Sys().(syscall.WaitStatus))) {
				return nil
			}
			orphans, limit = p.stop.done, time.After(p.orphanTimeout())
		case <-orphans:
			return killCause
		case <-limit:
			return killCause
		case <-p.overdue:
			p.overdue = nil
			killCause = cmp.Or[error](killCause, &graceError{filepath.Base(p.name), p.stop.signal, r.job.Command.StopGrace})
			killProcesses(p.cmd.Process.Pid, p.group)
		case s := <-p.o.Signals:
			// Slurm signals every process of a step or of a batch script, including this program.
			p.requestStop(s.(syscall.Signal), !r.Info.InSlurm() && !r.inBatchStep(p.o))
		case <-stopping:
			stopping = nil
			p.requestStop(stopSignal(r.Session.StopReason()), true)
		case <-aborted:
			// Another rank may have failed because it has connected to another user's port.
			aborted, killCause = nil, cmp.Or(killCause, guard.foundTaken(), context.Cause(r.Session.Context()))
			p.kill()
		case <-taken:
			taken, killCause = nil, cmp.Or(killCause, guard.foundTaken())
			p.kill()
		case <-failing:
			failing, killCause = nil, cmp.Or(killCause, p.components.failure())
			p.kill()
		case <-done:
			done, killCause = nil, cmp.Or(killCause, context.Cause(ctx))
			p.kill()
		}
		if running == nil && killCause != nil {
			return killCause
		}
	}
}

// requestStop requests that the program stop. send is false if Slurm has already sent the signal.
// Requests after the first one have no effect on the program.
func (p *userProgram) requestStop(s syscall.Signal, send bool) {
	p.components.noteStop()
	if p.stop != nil {
		return
	}
	failed := p.r.failedWorkers.Load() > 0
	if wanted := stopSignalOf(p.r.job.Command); wanted != 0 && wanted != s {
		s, send = wanted, true // Slurm has sent a different signal
	}
	p.stop = requestStop(p.cmd.Process.Pid, p.group, s, send)
	p.stop.failed, p.stop.codes = failed, stopCodesOf(p.r.job)
	if grace := time.Duration(p.r.job.Command.StopGrace); grace > 0 {
		p.overdue = time.After(grace)
	}
	if p.r.Info.LocalRank == 0 {
		writeStopFile(p.r.dir, "received "+s.String())
	}
	go p.stop.stopLaunchers(p.ended)
}

// kill stops the program with SIGTERM, and after half of killGrace with SIGKILL.
func (p *userProgram) kill() {
	signalProgram(p.cmd, p.group, p.ended, syscall.SIGTERM)
	go func() {
		select {
		case <-p.ended:
		case <-time.After(killGrace / 2):
			signalProgram(p.cmd, p.group, p.ended, syscall.SIGKILL)
		}
	}()
}

// stopSignal returns the signal to send to the program for a stop request of the launcher: SIGTERM if
// the launcher received SIGTERM or SIGINT, and SIGUSR1 otherwise.
func stopSignal(reason string) syscall.Signal {
	if reason == string(reasonTerminated) {
		return syscall.SIGTERM
	}
	return syscall.SIGUSR1
}

// exitResult returns the exit code of a program that has ended. It returns an error unless the
// program ended with 0 or after a stop request.
func exitResult(name string, state *os.ProcessState, stop *stopRequest) (int, error) {
	status := state.Sys().(syscall.WaitStatus)
	name = filepath.Base(name)
	code := exitCode(status)
	switch {
	case stop != nil:
		return stop.resultCode(code), nil
	case status.Signaled():
		return code, fmt.Errorf("%s was killed by signal %d (%s)", name, status.Signal(), status.Signal())
	case code != 0:
		return code, fmt.Errorf("%s ended with exit code %d", name, code)
	}
	return 0, nil
}

// openSnapshot opens the directory with the snapshot of the user's code, in which the program
// starts. The launcher has verified the snapshot by its path. Since then, a user with write
// access to a parent directory may have replaced it. So openSnapshot returns an error unless
// this user owns the directory and no other user can write to it.
func openSnapshot(path string) (*os.File, error) {
	dir, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("open code snapshot: %w", err)
	}
	info, err := dir.Stat()
	if err == nil {
		err = safefile.CheckOwner(info)
	}
	if err == nil && info.Mode().Perm()&0o022 != 0 {
		err = fmt.Errorf("mode is %04o: other users can write to it", info.Mode().Perm())
	}
	if err != nil {
		dir.Close()
		return nil, fmt.Errorf("open code snapshot %q: %w", path, err)
	}
	return dir, nil
}
