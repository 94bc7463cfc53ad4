package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/environ"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/launch/output"
	"github.com/ddpbatch/ddpbatch/jobs/process"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
)

const (
	// componentRestartDelay is the delay of a restart of a component.
	componentRestartDelay = time.Second
	// componentLastLines is the number of last lines to print from the output of a failed component.
	componentLastLines = 10
	// graceNotice is how long a component may take to stop without a message.
	graceNotice = 2 * time.Second
)

// A component is a component on this node, with its processes.
type component struct {
	c       *components
	spec    *jobs.Component
	at      componentAddress
	environ []string
	dir     string // working directory
	attempt int

	restarts int
	current  *componentProcess // the newest process
	quit     chan struct{}     // closed by stop
	quick    bool              // valid after quit is closed
	done     chan struct{}     // closed when no process is left; nil before start
}

// A componentProcess is one start of a component.
type componentProcess struct {
	cmd     *exec.Cmd
	group   int
	base    string // common part of the names of its output files
	ready   string // path of its ready file
	ended   chan struct{}
	guard   *portGuard
	cleanUp []func()
}

// rankOnlyVariables are the variables of a rank's program that components must not have. A process
// with RANK would count as a process of the rank. If the user or Slurm has set one of
// restoredVariables, components get that value.
var (
	rankOnlyVariables = strings.Fields("RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_NAME ROLE_RANK ROLE_WORLD_SIZE " +
		"MASTER_ADDR MASTER_PORT PET_MASTER_PORT TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS " +
		"LOCAL_SIZE CROSS_RANK CROSS_SIZE NODE_RANK DDPBATCH_HEARTBEAT DDPBATCH_METRICS DDPBATCH_MLFLOW_RUN_ID_FILE")
	restoredVariables = slices.Concat(deviceVariables, slurmTaskVariables, strings.Fields("WANDB_RUN_ID WANDB_RESUME MLFLOW_RUN_ID"))
)

// componentEnviron returns the environment of a component from the environment of the program.
func (c *components) componentEnviron(environ []string) []string {
	base := lookupIn(rankEnviron(removeTorchrunVars(c.o.Environ), c.r.job, c.r.site))
	environ = removeVars(slices.Clone(environ), slices.Concat(rankOnlyVariables, restoredVariables)...)
	for _, name := range restoredVariables {
		if value, ok := base(name); ok {
			environ = append(environ, name+"="+value)
		}
	}
	return c.setVariables(environ)
}

// newComponent prepares the start of a component on this node. Environ is the environment of the
// program.
func (c *components) newComponent(spec *jobs.Component, at componentAddress, environ []string, workdir string) *component {
	p := &component{c: c, spec: spec, at: at, dir: workdir, attempt: c.r.outputAttempt(&c.o), quit: make(chan struct{})}
	p.environ = c.componentEnviron(environ)
	set := func(name, value string) { p.environ = append(removeVars(p.environ, name), name+"="+value) }
	set(componentVariable, string(spec.Name))
	set(componentHostVariable, at.Host)
	set(componentPortVariable, strconv.Itoa(at.Port))
	set(componentAddressVariable, at.String())
	return p
}

// String returns the component in messages.
func (p *component) String() string {
	return fmt.Sprintf("component %q on %s", p.spec.Name, p.c.r.Info.Host)
}

// expandArgv returns the command line, for a start with the given ready file.
func (p *component) expandArgv(environ []string, ready string) ([]string, error) {
	values := placeholderValues(environ)
	maps.Copy(values, componentPlaceholders(p.c.r.job.Components, environ))
	values[jobs.PlaceholderHost], values[jobs.PlaceholderPort] = p.at.Host, strconv.Itoa(p.at.Port)
	values[jobs.PlaceholderAddress], values[jobs.PlaceholderReadyFile] = p.at.String(), ready
	argv, err := p.spec.ExpandArgv(values)
	if err != nil {
		return nil, err
	}
	if p.c.r.insideSetup() != "" {
		return p.c.r.setupArgv(environ, argv) // the setup may change PATH
	}
	if argv[0], err = lookPath(environ, argv[0]); err != nil {
		return nil, err
	}
	return argv, nil
}

// start starts the component, waits until it is ready, and supervises it from then on. An optional
// component that fails causes a warning only.
func (p *component) start(ctx context.Context) error {
	p.c.log.set(p, rundir.ComponentStarting, nil)
	err := p.startProcess()
	if err == nil {
		err = p.awaitReady(ctx)
	}
	ending := errors.Is(err, errStopRequested) || ctx.Err() != nil || p.c.r.Session.Context().Err() != nil
	switch {
	case ending:
		p.c.log.set(p, rundir.ComponentStopped, nil)
	case err != nil:
		p.c.log.set(p, rundir.ComponentFailed, err)
	}
	var taken *portTakenError // clients would connect to another user
	if err != nil && (!p.spec.Optional || errors.As(err, &taken)) || ending {
		p.end(true)
		return cmp.Or(err, context.Cause(ctx))
	}
	p.done = make(chan struct{})
	if err != nil {
		p.c.o.Say(fmt.Sprintf("warning: %v; the run continues, because the component is optional", err))
		p.end(true)
		release, err := p.reservePort() // before the program starts
		if err != nil {
			close(p.done)
			return err
		}
		go func() {
			defer close(p.done)
			p.holdPort(release)
		}()
		return nil
	}
	p.setReady()
	go func() {
		defer close(p.done)
		if err := p.supervise(); err != nil {
			p.c.log.set(p, rundir.ComponentFailed, err)
		} else {
			p.c.log.set(p, rundir.ComponentStopped, nil)
		}
	}()
	return nil
}

func (p *component) setReady() {
	p.c.log.set(p, rundir.ComponentReady, nil)
	switch {
	case p.spec.Ready == jobs.ReadyNone:
		p.c.o.Say(fmt.Sprintf("%s has started; its output is in %s", p, p.log()))
	case p.restarts > 0:
		p.c.o.Say(fmt.Sprintf("%s is ready again; its output is in %s", p, p.log()))
	default:
		p.c.o.Say(fmt.Sprintf("%s is ready at %s; its output is in %s", p, p.at, p.log()))
	}
}

// log returns the path of the output of the newest process, or the directory for output if no process
// is left.
func (p *component) log() string {
	if p.current == nil {
		return p.c.r.dir.RankOutput(p.attempt)
	}
	return p.c.r.dir.RankOutput(p.attempt) + "/" + output.Parts(p.current.base)[0]
}

func (p *component) startProcess() (err error) {
	r := p.c.r
	q := &componentProcess{base: output.ComponentBase(string(p.spec.Name), p.at.Node, p.restarts), ended: make(chan struct{})}
	q.guard = p.newGuard()
	defer func() {
		if err != nil {
			q.close()
			err = componentError{fmt.Errorf("start %s: %w", p, err)}
		}
	}()
	dir, err := r.dir.CreateRankOutput(p.attempt)
	if err != nil {
		return err
	}
	q.cleanUp = append(q.cleanUp, dir.Close)
	name := q.base + ".ready"
	if err := dir.Remove(name); err != nil {
		return err
	}
	q.ready = r.dir.RankOutput(p.attempt) + "/" + name
	environ := append(removeVars(slices.Clone(p.environ), componentReadyVariable), componentReadyVariable+"="+q.ready)
	argv, err := p.expandArgv(environ, q.ready)
	if err != nil {
		return err
	}
	if err := q.guard.checkUnused(); err != nil {
		return err
	}
	capture, err := p.capture(q.base, dir)
	if err != nil {
		return err
	}
	q.cleanUp = append(q.cleanUp, func() { capture.Close(r.Session.Context()) })
	cmd := exec.Command(argv[0])
	cmd.Args, cmd.Env, cmd.Dir = argv, environ, p.dir
	cmd.Stdout, cmd.Stderr = capture.Stdout, capture.Stderr
	group, release, err := newProcessGroup()
	if err != nil {
		p.c.o.Say(fmt.Sprintf("warning: %s: %v", r.Info.Host, err))
	}
	q.cleanUp = append(q.cleanUp, release)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: group}
	var done sync.WaitGroup
	if err := startWithDeathSignal(cmd, &done, syscall.SIGKILL); err != nil {
		return explainStartError(argv[0], p.dir, err)
	}
	q.cmd, q.group = cmd, cmp.Or(group, cmd.Process.Pid)
	go func() { done.Wait(); close(q.ended) }()
	q.guard.watch(q.ended)
	p.current = q
	return nil
}

// capture starts to copy the output of a process to files.
func (p *component) capture(base string, dir *rundir.OutputDir) (*output.Capture, error) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	// The capture forwards nothing to null. It needs the file to decide what kind of stream to create.
	defer null.Close()
	return output.StartCapture(output.Options{Mode: output.PerRank, Base: base, Dir: dir, Limit: int64(p.c.r.job.Command.OutputLimit),
		Stdout: null, Stderr: null, Warn: func(m string) { p.c.o.Say(fmt.Sprintf("warning: %s: %s", p, m)) }})
}

// close releases the resources of a process that has ended.
func (q *componentProcess) close() {
	for _, f := range slices.Backward(q.cleanUp) {
		f()
	}
	q.cleanUp = nil
}

// end stops the newest process with its process group, and releases the resources of the process. No
// process is the newest one afterward.
func (p *component) end(quick bool) {
	q := p.current
	if q == nil || q.cmd == nil {
		return
	}
	p.terminate(quick)
	signalProgram(q.cmd, q.group, q.ended, syscall.SIGKILL)
	<-q.ended
	q.close()
	p.current = nil
}

// terminate sends SIGTERM to the newest process, and waits until it has ended or its grace is over.
func (p *component) terminate(quick bool) {
	q := p.current
	select {
	case <-q.ended:
		return
	default:
	}
	signalProgram(q.cmd, q.group, q.ended, syscall.SIGTERM)
	grace := p.c.graceOf(p.spec, quick)
	limit, notice := time.NewTimer(grace), time.NewTimer(graceNotice)
	defer limit.Stop()
	defer notice.Stop()
	began, aborted, stopping := time.Now(), p.c.r.Session.Context().Done(), p.c.stopping
	shorten := func() {
		grace = min(grace, time.Since(began)+p.c.graceOf(p.spec, quick))
		limit.Reset(time.Until(began.Add(grace)))
	}
	for {
		select {
		case <-q.ended:
			return
		case <-limit.C:
			return
		case <-notice.C:
			if !quick && grace > graceNotice {
				p.c.o.Say(fmt.Sprintf("waiting up to %s for %s to stop", grace.Round(time.Second), p))
			}
		case <-aborted: // less time is left
			aborted = nil
			shorten()
		case <-stopping:
			stopping = nil
			shorten()
		}
	}
}

// stop stops the component and returns when no process of it is left.
func (p *component) stop(quick bool) {
	if p.done == nil {
		return // start has ended the process
	}
	p.quick = quick
	close(p.quit)
	<-p.done
}

// supervise watches a component that is ready, restarts it, and ends it when stop is called or the
// attempt ends. It returns an error if the component has failed.
func (p *component) supervise() error {
	aborted := p.c.r.Session.Context().Done()
	for {
		var err error
		select {
		case <-p.quit:
			p.end(p.quick)
			return nil
		case <-aborted:
			p.end(true)
			return nil
		case <-p.current.guard.takenDuringWatch():
			err = p.current.guard.foundTaken()
		case <-p.current.ended:
			if p.endsForStop() {
				p.end(true)
				return nil
			}
			err = p.describeEnd("while the program ran")
		}
		for err != nil {
			log := p.log()
			p.end(true)
			var taken *portTakenError
			switch {
			case errors.As(err, &taken): // clients have the address with this port
				p.c.fail(err)
				return err
			case p.restarts < p.spec.Restart:
				p.c.o.Say(fmt.Sprintf("%v; starting it again (%d of %d)", err, p.restarts+1, p.spec.Restart))
				p.c.log.set(p, rundir.ComponentRestarting, err)
			case p.spec.Optional:
				p.c.o.Say(fmt.Sprintf("warning: %v; the run continues, because the component is optional; its output is in %s", err, log))
				p.c.log.set(p, rundir.ComponentFailed, err)
				release, taken := p.reservePort()
				if taken != nil {
					p.c.fail(taken)
				}
				p.holdPort(release)
				return err
			default:
				p.c.fail(p.wrap(err))
				return err
			}
			if err = p.restart(); errors.Is(err, errStopRequested) || p.c.r.Session.Context().Err() != nil {
				p.end(true)
				return nil
			}
		}
	}
}

func (p *component) newGuard() *portGuard {
	return &portGuard{addr: p.at.addr(), port: p.at.Port, what: "port " + strconv.Itoa(p.at.Port) + " of " + p.String(),
		taken: make(chan struct{}), until: time.Now().Add(portWatchTime)}
}

// reservePort listens on the port of a component that has ended, and resets all connections, until
// release is called. Otherwise another user could take the port and answer the ranks. The error names
// another user who already has it. If the port can be neither reserved nor blamed on a user,
// reservePort tries again until release is called, and fails the components if another user listens.
func (p *component) reservePort() (release func(), err error) {
	if l := p.listen(); l != nil {
		go resetConnections(l)
		return func() { l.Close() }, nil
	}
	if err := p.newGuard().foundTaken(); err != nil {
		return func() {}, err
	}
	released, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		p.awaitPort(released)
	}()
	return func() { close(released); <-done }, nil
}

// listen listens on the port of the component, on all addresses if possible. A user who has the port
// on a different address of this node must not prevent the reservation, so it then listens on the
// address that clients use. It returns nil if this is not possible, because a socket is bound to the
// port, or if a process of the component is left, which may still need the port.
func (p *component) listen() net.Listener {
	run, _ := environ.Lookup(p.environ, process.RunVariable)
	if len(process.OfComponent(run, string(p.spec.Name))) > 0 {
		return nil
	}
	for _, host := range []string{"", p.at.Host} {
		if l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(p.at.Port))); err == nil {
			return l
		}
	}
	return nil
}

// awaitPort reserves the port as soon as possible, until released is closed. It fails the components
// if another user listens on it before.
func (p *component) awaitPort(released <-chan struct{}) {
	for {
		began := time.Now()
		if l := p.listen(); l != nil {
			go resetConnections(l)
			<-released
			l.Close()
			return
		}
		if err := p.newGuard().foundTaken(); err != nil {
			p.c.fail(err)
			return
		}
		select {
		case <-released:
			return
		case <-time.After(portWatchInterval(time.Since(began))):
		}
	}
}

// resetConnections resets all connections to l until l is closed.
func resetConnections(l net.Listener) {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(componentRestartDelay) // out of file descriptors
			continue
		}
		_ = conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	}
}

// holdPort calls release when stop is called or the attempt ends.
func (p *component) holdPort(release func()) {
	defer release()
	select {
	case <-p.quit:
	case <-p.c.r.Session.Context().Done():
	}
}

// restart starts the component again after a delay. If it must stop in the meantime, the error is
// errStopRequested.
func (p *component) restart() error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-p.quit:
		case <-p.c.r.Session.Context().Done():
		case <-ctx.Done():
			return
		}
		cancel(errStopRequested)
	}()
	defer func() { cancel(nil); <-stopped }()
	release, err := p.reservePort()
	if err != nil {
		return err
	}
	select {
	case <-time.After(componentRestartDelay):
	case <-ctx.Done():
		release()
		return context.Cause(ctx)
	}
	release()
	p.restarts++
	err = p.startProcess()
	if err == nil {
		err = p.awaitReady(ctx)
	}
	if err == nil {
		p.setReady()
	}
	return err
}

// endsForStop reports whether the component has ended because of a stop request. Slurm signals all
// processes of a step, and this process may receive the signal later.
func (p *component) endsForStop() bool {
	delay := signalDelay
	if status, ok := p.current.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && isStopCode(exitCode(status)) {
		delay = stopSignalDelay
	}
	if p.c.isStopping() {
		return true
	}
	select {
	case <-p.c.stopping:
	case <-p.c.r.Session.Stopping():
	case <-p.c.r.Session.Context().Done():
	case <-p.quit:
	case <-time.After(delay):
		return false
	}
	return true
}

// describeEnd returns an error about the end of the newest process.
func (p *component) describeEnd(when string) error {
	status, _ := p.current.cmd.ProcessState.Sys().(syscall.WaitStatus)
	text := fmt.Sprintf("%s ended with exit code %d %s", p, exitCode(status), when)
	if status.Signaled() {
		text = fmt.Sprintf("%s was killed by signal %d (%s) %s", p, status.Signal(), status.Signal(), when)
	}
	if exitCode(status) == 0 {
		return hints.Errorf("keep the component in the foreground, or set optional = true", "%s", text)
	}
	return errors.New(text)
}

// wrap adds the log of the component to an error that ends the attempt. It prints the last lines of
// that log.
func (p *component) wrap(err error) error {
	var before componentError
	if errors.As(err, &before) {
		return err
	}
	base := output.ComponentBase(string(p.spec.Name), p.at.Node, p.restarts)
	open := func(name string) (*os.File, error) { return p.c.r.dir.OpenRankOutput(p.attempt, name) }
	lines, _ := output.LastLines(open, base, componentLastLines) // a component that printed nothing has no file
	path := p.c.r.dir.RankOutput(p.attempt) + "/" + output.Parts(base)[0]
	if len(lines) == 0 {
		return componentError{hints.Add(fmt.Errorf("%w; it has printed nothing", err), hints.Of(err))}
	}
	p.c.o.Say(fmt.Sprintf("the last lines of %s:", p))
	for _, line := range lines {
		p.c.o.Say("    " + line)
	}
	return componentError{hints.Add(fmt.Errorf("%w; its output is in %s", err, path), cmp.Or(hints.Of(err), "read its output: `ddpbatch logs "+jobs.ShellQuote(p.c.r.dir.Path)+" --component "+string(p.spec.Name)+"`"))}
}
