package launch

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/secrets"
	"github.com/ddpbatch/ddpbatch/nccl"
	"github.com/ddpbatch/ddpbatch/netif"
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
// plus the signal number if a signal killed it. It returns an error if the command failed on
// its own.
func (r *Rank) Program(ctx context.Context, o ProgramOptions) (exit int, err error) {
	host, port, err := r.agreeOnMaster(ctx)
	if err != nil {
		return 1, err
	}
	environ, err := r.programEnviron(ctx, o, host, port)
	if err != nil {
		return 1, err
	}
	argv, err := r.programArgv(environ, host, port)
	if err != nil {
		return 1, err
	}
	workdir := string(r.job.Command.Workdir)
	if dir, ok := lookupIn(o.Environ)(envWorkdir); ok {
		workdir = dir
	}
	cmd := exec.Command(argv[0])
	cmd.Args, cmd.Env, cmd.Dir = argv, environ, workdir
	if r.job.Command.Snapshot && workdir != string(r.job.Command.Workdir) {
		snapshot, err := openSnapshot(workdir)
		if err != nil {
			return 1, err
		}
		defer snapshot.Close()
		cmd.Dir = descriptorPath(snapshot)
	}
	cmd.Stdout, cmd.Stderr = o.Stdout, o.Stderr
	// A separate process group allows ddpbatch to kill the program together with its workers.
	group, release, err := newProcessGroup()
	if err != nil {
		o.Say(fmt.Sprintf("WARNING: %s: %v", r.Info.Host, err))
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
	if r.job.Command.Launcher == jobs.LauncherTorchrun {
		go r.watchWorkers(cmd.Process.Pid, ended)
	}
	stop, cut := r.superviseProgram(ctx, o, cmd, group, ended)
	// Workers that the program left behind would hold memory, ports, and GPUs.
	_ = syscall.Kill(-group, syscall.SIGKILL)
	if cut != nil {
		return exitLost, cut
	}
	if stop != nil {
		stop.wait(workerCodeTimeout)
	}
	if stop != nil && !stop.handled {
		r.Session.NoteUnhandledStop()
	}
	return exitResult(argv[0], cmd.ProcessState, stop)
}

// orphanTimeout returns how long follow waits for processes that outlive a stopped program.
// The time is long enough to save, and leaves time for the requeue before the time limit.
func (r *Rank) orphanTimeout() time.Duration {
	return max(minOrphanTimeout, time.Duration(r.job.Slurm.SignalBeforeEnd)/2)
}

// superviseProgram forwards signals until the program has ended. If a stop signal has ended the program,
// as it ends a shell without a trap, follow also waits for the processes that the signal was
// for. It waits at most orphanTimeout. It returns the stop request, if any, and the cause if
// it killed the program.
func (r *Rank) superviseProgram(ctx context.Context, o ProgramOptions, cmd *exec.Cmd, group int, ended <-chan struct{}) (stop *stopRequest, cut error) {
	stopping, aborted, done := r.Session.Stopping(), r.Session.Context().Done(), ctx.Done()
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
	var limit <-chan time.Time
	request := func(s syscall.Signal, send bool) {
		if stop == nil {
			failed := r.failedWorkers.Load() > 0
			stop = requestStop(pid, group, s, send)
			stop.failed = failed
			go stop.stopLaunchers(ended)
		}
	}
	for {
		select {
		case <-running:
			running = nil
			if cut != nil {
				return stop, cut
			}
			if stop == nil {
				if s, ok := receivedStop(cmd.ProcessState, o.Signals, aborted, done); ok {
					request(s.(syscall.Signal), false)
				}
			}
			if stop == nil || !killedByStopSignal(cmd.ProcessState.Sys().(syscall.WaitStatus)) {
				return stop, cut
			}
			orphans, limit = stop.done, time.After(r.orphanTimeout())
		case <-orphans:
			return stop, cut
		case <-limit:
			return stop, cut
		case s := <-o.Signals:
			// Slurm signals every process of a step, including this program.
			request(s.(syscall.Signal), !r.Info.InSlurm())
		case <-stopping:
			stopping = nil
			request(stopSignal(r.Session.StopReason()), true)
		case <-aborted:
			aborted, cut = nil, context.Cause(r.Session.Context())
			kill()
		case <-done:
			done, cut = nil, context.Cause(ctx)
			kill()
		}
		if running == nil && cut != nil {
			return stop, cut
		}
	}
}

// stopSignal returns the signal to send to the program: the signal that the launcher received.
func stopSignal(reason string) syscall.Signal {
	if reason == string(StopTerminated) {
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

// agreeOnMaster returns the address of rank 0 on the agreed network and a port for the program's own
// rendezvous. Rank 0 finds the port. All ranks must call master.
func (r *Rank) agreeOnMaster(ctx context.Context) (host string, port int, err error) {
	ctx, cancel := r.withJoinTimeout(ctx)
	defer cancel()
	var offer string
	if r.Info.Rank == 0 {
		port, err := findFreePort(r.Choice.Addr.String())
		if err != nil {
			return "", 0, err
		}
		offer = net.JoinHostPort(r.Choice.Addr.String(), strconv.Itoa(port))
	}
	reply, err := r.Session.Exchange(ctx, roundMaster, []byte(offer))
	if err != nil {
		return "", 0, err
	}
	host, text, err := net.SplitHostPort(string(reply))
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil {
		return "", 0, fmt.Errorf("rank 0's address %q: %w", reply, err)
	}
	return host, port, nil
}

// programEnviron returns the environment of the user's program: the rank's environment without
// the variables of the launcher, plus the variables of torchrun, the job's secrets, and the
// variables of the agreed network.
func (r *Rank) programEnviron(ctx context.Context, o ProgramOptions, host string, port int) ([]string, error) {
	environ := rankEnviron(removeTorchrunVars(o.Environ), r.job, r.site)
	set := func(name, value string) { environ = append(removeVars(environ, name), name+"="+value) }
	p := r.Info
	for name, n := range map[string]int{
		"RANK": p.Rank, "WORLD_SIZE": p.WorldSize, "LOCAL_RANK": p.LocalRank, "LOCAL_WORLD_SIZE": p.LocalWorldSize,
		"GROUP_RANK": p.NodeRank, "MASTER_PORT": port,
	} {
		if c := r.job.Command; c != nil && c.Launcher == jobs.LauncherTorchrun {
			// torchrun sets these variables for the processes that it starts.
			environ = removeVars(environ, name)
			continue
		}
		set(name, strconv.Itoa(n))
	}
	if r.job.Command.Launcher == jobs.LauncherRank {
		set("MASTER_ADDR", host)
	}
	lookup := lookupIn(o.Environ)
	if _, launched := lookup(LauncherVariable); launched {
		for _, name := range []string{programRunDir, programRunID, programRestarts, programMetrics} {
			if value, ok := lookup(name); ok {
				set(name, value)
			}
		}
	}
	lookup = lookupIn(environ)
	devices, warning, err := r.visibleDevices(ctx, lookup)
	if err != nil {
		return nil, err
	}
	if warning != "" {
		o.Say("WARNING: " + warning)
	}
	for name, value := range devices {
		set(name, value)
	}
	secretValues, err := secrets.Resolve(string(r.job.Setup.Secrets.File), envNames(r.job.Setup.Secrets.Names), lookup)
	if err != nil {
		return nil, err
	}
	for name, value := range secretValues {
		set(name, value)
	}
	lookup = lookupIn(environ)
	if _, given := lookup("PYTHONUNBUFFERED"); !given {
		// Python buffers output to a file, so lines would appear late.
		set("PYTHONUNBUFFERED", "1")
	}
	plan, err := r.networkPlan(ctx, o.Say, lookup)
	if err != nil {
		return nil, err
	}
	for _, v := range plan.ToSet() {
		set(v.Name, v.Value)
	}
	if r.Info.Rank == 0 {
		// A problem with a variable is the same on all nodes. Report it only once.
		for _, w := range plan.Warnings {
			o.Say(fmt.Sprintf("WARNING: %s: %s", r.Info.Host, w))
		}
	}
	return environ, nil
}

// networkPlan returns the variables that make NCCL and related libraries use the agreed
// network.
func (r *Rank) networkPlan(ctx context.Context, say func(string), lookup func(string) (string, bool)) (nccl.Env, error) {
	inventory, err := netif.Collect(ctx, netif.CollectOptions{})
	if err != nil {
		return nccl.Env{}, fmt.Errorf("look for this node's networks: %w", err)
	}
	f := nccl.Facts{Choice: r.Choice, Inventory: inventory, Job: r.network, LocalRank: r.Info.LocalRank,
		Site: nccl.Profile{Name: r.site.Name(), Vars: map[string]string{}}}
	if _, asked := lookup("NCCL_DEBUG"); !asked {
		// Without NCCL_DEBUG, NCCL logs nothing. Users who set it expect its output in the
		// log, and not in this file.
		f.DebugFile = filepath.Join(filepath.Dir(r.dir.RankLog(0)), "nccl-%h-%p.log")
	}
	if c := r.job.Command; c != nil && c.Launcher == jobs.LauncherTorchrun {
		f.LocalRank = -1
	}
	for _, x := range slices.Concat(r.job.Network.Exclude, r.site.Network.Exclude) {
		f.Exclude = append(f.Exclude, string(x))
	}
	for name, value := range r.site.Env {
		f.Site.Vars[string(name)] = string(value)
	}
	// A variable with the site's value belongs to the site, not to the user.
	f.Lookup = func(name string) (string, bool) {
		value, ok := lookup(name)
		if site, also := r.site.Env[jobs.EnvName(name)]; ok && also && string(site) == value {
			return "", false
		}
		return value, ok
	}
	conf, err := nccl.ReadConf("", lookup)
	if err != nil {
		// NCCL also ignores the file.
		say(fmt.Sprintf("WARNING: %s: %v", r.Info.Host, err))
	}
	f.Conf = conf
	return nccl.Plan(f), nil
}

// NetworkVariables returns the variables with the given prefixes that make a library in this
// process use the agreed network, and warnings about variables that are already set.
func (r *Rank) NetworkVariables(ctx context.Context, prefixes ...string) (set map[string]string, warnings []string, err error) {
	plan, err := r.networkPlan(ctx, r.say, r.lookup)
	set = map[string]string{}
	for _, v := range plan.ToSet() {
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(v.Name, p) }) {
			set[v.Name] = v.Value
		}
	}
	return set, plan.Warnings, err
}

func envNames(list []jobs.EnvName) []string {
	out := make([]string, len(list))
	for i, n := range list {
		out[i] = string(n)
	}
	return out
}

// programArgv returns the command line. It looks up the program in the rank's PATH.
func (r *Rank) programArgv(environ []string, host string, port int) ([]string, error) {
	var argv []string
	for _, a := range r.job.Command.Argv {
		argv = append(argv, string(a))
	}
	if c := r.job.Command; c.Launcher == jobs.LauncherTorchrun {
		interpreter, script, err := c.TorchrunArgv()
		if err != nil {
			return nil, err
		}
		argv = torchrunArgv(environ)
		if interpreter != "" {
			argv = []string{interpreter, "-m", torchrunModule}
		}
		argv = slices.Concat(argv, []string{
			"--nnodes", strconv.Itoa(r.Info.WorldSize), "--node_rank", strconv.Itoa(r.Info.Rank),
			"--nproc_per_node", strconv.Itoa(r.perNode), "--master_addr", host, "--master_port", strconv.Itoa(port),
		}, script)
	}
	path, err := lookPath(environ, argv[0])
	if err != nil {
		return nil, err
	}
	argv[0] = path
	return argv, nil
}
