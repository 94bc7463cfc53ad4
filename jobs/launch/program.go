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
	workdir := string(r.job.Command.Workdir)
	if dir, ok := lookupIn(o.Environ)(envWorkdir); ok {
		workdir = dir
	}
	dir := workdir
	if r.job.Command.Snapshot && workdir != string(r.job.Command.Workdir) {
		snapshot, err := openSnapshot(workdir)
		if err != nil {
			return 1, err
		}
		defer snapshot.Close()
		dir = descriptorPath(snapshot)
	}
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
	environ = components.setVariables(environ)
	argv, err := r.programArgv(environ, host, workdir)
	if err != nil {
		return 1, err
	}
	name := argv[0]
	if r.insideSetup() != "" {
		name = string(r.job.Command.Argv[0])
		if argv, err = r.setupArgv(environ, argv); err != nil {
			return 1, err
		}
	}
	cmd := exec.Command(argv[0])
	cmd.Args, cmd.Env, cmd.Dir = argv, environ, dir
	defer r.captureOutput(&o)()
	cmd.Stdout, cmd.Stderr = o.Stdout, o.Stderr
	guard := r.newPortGuard(host, port)
	if err := guard.checkUnused(); err != nil {
		return exitLost, err
	}
	// A separate process group allows ddpbatch to kill the program together with its workers.
	group, release, err := newProcessGroup()
	if err != nil {
		o.Say(fmt.Sprintf("warning: %s: %v", r.Info.Host, err))
	}
	defer release()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: group}
	var done sync.WaitGroup
	if err := startWithDeathSignal(cmd, &done, syscall.SIGKILL); err != nil {
		return 1, explainStartError(argv[0], workdir, err)
	}
	if group == 0 {
		group = cmd.Process.Pid
	}
	ended := make(chan struct{})
	go func() { done.Wait(); close(ended) }()
	guard.watch(ended)
	if r.job.Command.Launcher == jobs.LauncherTorchrun {
		go r.watchWorkers(cmd.Process.Pid, ended)
	}
	defer r.measureUsage(o, environ)()
	stop, killCause := r.superviseProgram(ctx, o, name, cmd, group, ended, guard, components)
	// Workers that the program left behind would hold memory, ports, and GPUs.
	_ = syscall.Kill(-group, syscall.SIGKILL)
	var component componentError
	if errors.As(killCause, &component) {
		return exitFailed, killCause
	}
	if killCause != nil {
		return exitLost, killCause
	}
	if stop != nil {
		stop.wait(workerCodeTimeout)
	}
	if stop != nil && !stop.handled {
		r.Session.NoteUnhandledStop()
	}
	exit, err = exitResult(name, cmd.ProcessState, stop)
	if err != nil {
		return exit, guard.explain(err)
	}
	if err := components.awaitPrograms(ctx); err != nil {
		return exitFailed, err
	}
	return exit, nil
}

// setupArgv returns a command line that runs the steps of [setup] in this rank before argv.
func (r *Rank) setupArgv(environ, argv []string) ([]string, error) {
	bash, err := lookPath(environ, "bash")
	if err != nil {
		return nil, err
	}
	return append([]string{bash, "-c", r.insideSetup() + "exec \"$@\"", "setup"}, argv...), nil
}

// orphanTimeout returns how long superviseProgram waits for processes that outlive a stopped program.
// The time is long enough to save, and leaves time for the requeue before the time limit.
func (r *Rank) orphanTimeout() time.Duration {
	return max(minOrphanTimeout, time.Duration(r.job.Slurm.SignalBeforeEnd)/2)
}

// superviseProgram forwards stop signals until the program has ended. It kills the program if the
// attempt fails, if a component fails, if guard finds that another user has the program's port, or if
// the program does not end within command.stop_grace.
//
// A stop signal ends a shell without a trap, but not the commands of the shell. If the signal has
// ended the program, superviseProgram also waits for the processes that the signal was for, at most
// for orphanTimeout. It returns the stop request, if any, and the first cause if it killed the program.
func (r *Rank) superviseProgram(ctx context.Context, o ProgramOptions, name string, cmd *exec.Cmd, group int, ended <-chan struct{}, guard *portGuard, components *components) (stop *stopRequest, killCause error) {
	stopping, aborted, done, taken := r.Session.Stopping(), r.Session.Context().Done(), ctx.Done(), guard.takenDuringWatch()
	failing := components.failing()
	pid := cmd.Process.Pid
	kill := func() {
		_ = syscall.Kill(-group, syscall.SIGTERM)
		go func() {
			select {
			case <-ended:
			case <-time.After(killGrace / 2):
				_ = syscall.Kill(-group, syscall.SIGKILL)
			}
		}()
	}
	running := ended
	var orphans <-chan struct{}
	var limit, overdue <-chan time.Time
	request := func(s syscall.Signal, send bool) {
		components.noteStop()
		if stop == nil {
			failed := r.failedWorkers.Load() > 0
			if wanted := stopSignalOf(r.job.Command); wanted != 0 && wanted != s {
				s, send = wanted, true // Slurm has sent a different signal
			}
			stop = requestStop(pid, group, s, send)
			stop.failed, stop.codes = failed, stopCodesOf(r.job)
			if grace := time.Duration(r.job.Command.StopGrace); grace > 0 {
				overdue = time.After(grace)
			}
			if r.Info.LocalRank == 0 {
				writeStopFile(r.dir, "received "+s.String())
			}
			go stop.stopLaunchers(ended)
		}
	}
	for {
		select {
		case <-running:
			running = nil
			if killCause != nil {
				return stop, killCause
			}
			if stop == nil {
				if s, ok := receivedStop(cmd.ProcessState, o.Signals, aborted, done); ok {
					request(s.(syscall.Signal), false)
				}
			}
			if stop == nil || !stopCodesOf(r.job).isSignal(exitCode(cmd.ProcessState.Sys().(syscall.WaitStatus))) {
				return stop, killCause
			}
			orphans, limit = stop.done, time.After(r.orphanTimeout())
		case <-orphans:
			return stop, killCause
		case <-limit:
			return stop, killCause
		case <-overdue:
			overdue, killCause = nil, cmp.Or[error](killCause, &graceError{filepath.Base(name), stop.signal, r.job.Command.StopGrace})
			killProcesses(pid, group)
		case s := <-o.Signals:
			// Slurm signals every process of a step or of a batch script, including this program.
			request(s.(syscall.Signal), !r.Info.InSlurm() && !r.inBatchStep(o))
		case <-stopping:
			stopping = nil
			request(stopSignal(r.Session.StopReason()), true)
		case <-aborted:
			// Another rank may have failed because it has connected to another user's port.
			aborted, killCause = nil, cmp.Or(killCause, guard.foundTaken(), context.Cause(r.Session.Context()))
			kill()
		case <-taken:
			taken, killCause = nil, cmp.Or(killCause, guard.foundTaken())
			kill()
		case <-failing:
			failing, killCause = nil, cmp.Or(killCause, components.failure())
			kill()
		case <-done:
			done, killCause = nil, cmp.Or(killCause, context.Cause(ctx))
			kill()
		}
		if running == nil && killCause != nil {
			return stop, killCause
		}
	}
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

// descriptorPath returns a path of an open directory. A child of this process can change to it
// even if the directory is moved or replaced. Without /proc, descriptorPath returns the path
// with which the directory was opened.
func descriptorPath(dir *os.File) string {
	path := fmt.Sprintf("/proc/self/fd/%d", dir.Fd())
	opened, err := dir.Stat()
	if err != nil {
		return dir.Name()
	}
	if current, err := os.Stat(path); err != nil || !os.SameFile(opened, current) {
		return dir.Name()
	}
	return path
}
