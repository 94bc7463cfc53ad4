package launch

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/netif"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// attempt is one start of all ranks, from the rendezvous to the end of the last process.
type attempt struct {
	o           Options
	number      int
	nodes       []string // nodes of the ranks; nil without Slurm
	hosts       []string // host of each rank
	tasks       []int    // number of processes that the launcher starts on each of nodes; nil without a step
	layout      string   // number of ranks on each of nodes, if it is not equal on all nodes
	server      *rendezvous.Server
	environ     []string // for the ranks
	world       int
	stopped     bool            // a stop was requested
	stoppedAt   time.Time       // time of that request
	stopFile    <-chan struct{} // closed after the write of the stop file; nil without a stop
	nearEnd     bool            // the stop was requested because of the time limit or a preemption
	limitNear   <-chan struct{}
	pendingStop os.Signal    // stop signal received before this attempt; nil if none
	killed      map[int]bool // ranks that the launcher had to kill
	secret      string       // name of the file with the secret, in the run directory; empty without Slurm

	// programStep is the newest step in the output of a user's program, or -1. It is valid after
	// run has returned.
	programStep int

	output int // number of the attempt across all launchers, for the output of a user's program

	// startable is closed when all components are ready, so that the programs may start. It is nil
	// without components.
	startable chan struct{}

	began      time.Time
	published  publishedState // state in live.json, see publish
	mu         sync.Mutex
	step       string // Slurm's step ID, empty until a rank reports it
	stopReason string // reason of the stop request
	hang       string // text about a program that hangs; empty if it does not hang
	final      bool   // no attempt follows a failure of this one
}

// inStep reports whether the ranks run in a step of the allocation. Otherwise they are children of
// the launcher.
func (a *attempt) inStep() bool { return a.o.Allocation != nil && !a.o.Job.RunsOnce() }

// newAttempt opens the rendezvous, publishes the secret, and prepares the environment of the ranks. It
// does not start any rank.
func newAttempt(ctx context.Context, o Options, number int, nodes []string) (*attempt, error) {
	record, err := o.Dir.ReadRecord()
	if err != nil {
		return nil, err
	}
	secret, err := wire.NewSecret()
	if err != nil {
		return nil, err
	}
	reportKey, err := wire.NewSecret()
	if err != nil {
		return nil, err
	}
	a := &attempt{o: o, number: number, nodes: nodes, world: o.Processes, programStep: -1, began: time.Now().UTC()}
	perNode := strconv.Itoa(o.Processes)
	bind := "127.0.0.1:0"
	hosts := []string{"127.0.0.1"}
	if a.inStep() {
		bind = ":0"
		inventory, err := netif.Collect(ctx)
		if err != nil {
			return nil, fmt.Errorf("collect network interfaces: %w", err)
		}
		hosts = reachableAddresses(inventory)
	}
	torchrun := o.Job.Command != nil && o.Job.Command.Launcher == jobs.LauncherTorchrun
	switch {
	case a.inStep():
		var ranks []int
		for i := range nodes {
			ranks = append(ranks, o.Job.RanksOn(i))
		}
		if perNode = slurm.FoldTasksPerNode(ranks); !isUniform(ranks) {
			a.layout = perNode
		}
		if a.tasks = ranks; torchrun {
			a.tasks = slices.Repeat([]int{1}, len(nodes))
		}
		a.hosts = taskNodes(nodes, a.tasks)
		a.world = len(a.hosts)
	case o.Allocation != nil: // run = "once"
		a.world = 1
		a.hosts = nodes[:1]
	default:
		if a.world = o.Processes; torchrun {
			a.world = 1
		}
		name, _ := os.Hostname()
		a.hosts = slices.Repeat([]string{name}, a.world)
	}
	listener, err := net.Listen("tcp", bind)
	if err != nil {
		return nil, fmt.Errorf("open rendezvous: %w", err)
	}
	a.server = rendezvous.Serve(listener, rendezvous.ServerOptions{
		WorldSize: a.world, Secret: secret, ReportKey: reportKey, JoinTimeout: time.Duration(o.Job.Network.JoinTimeout),
		Silence: time.Duration(o.Job.Network.HeartbeatTimeout), Stall: time.Duration(o.Job.Network.ProgressTimeout),
		Program: o.Program, Spec: o.Spec, Host: func(rank int) string { return a.hosts[rank] }, Rounds: a.rounds(),
		Warn: func(m string) { o.Say("warning: " + m) },
	})
	port := strconv.Itoa(a.server.Port())
	for i := range hosts {
		hosts[i] = net.JoinHostPort(hosts[i], port)
	}
	a.environ = append(rankEnviron(o.Environ, o.Job, o.Site),
		envAddresses+"="+strings.Join(hosts, ","),
		envReportKey+"="+reportKey.Encode(),
		envAttempt+"="+strconv.Itoa(number),
		envPerNode+"="+perNode,
		RunVariable+"="+record.Run,
	)
	if o.Job.Command != nil {
		program, err := programContext(ctx, o)
		if err != nil {
			a.server.Close()
			return nil, err
		}
		a.environ = append(a.environ, program...)
	}
	if err := a.publishSecret(secret); err != nil {
		a.server.Close()
		return nil, err
	}
	if c := o.Job.Command; c != nil {
		a.output = o.prepareOutput()
		a.environ = append(a.environ, envOutput+"="+strconv.Itoa(a.output))
		// The work directory may be a snapshot, and only the launcher knows its path.
		a.environ = append(a.environ, envWorkdir+"="+string(c.Workdir))
	}
	return a, nil
}

// publishSecret passes the secret to the ranks. Slurm sends the environment of a step to the nodes
// unencrypted, so ranks of a step read the secret from a file in the run directory. Ranks on
// this machine receive it in their environment, which other users cannot read.
func (a *attempt) publishSecret(secret wire.Secret) error {
	if !a.inStep() {
		a.environ = append(a.environ, envSecret+"="+secret.Encode())
		return nil
	}
	var err error
	if a.secret, err = a.o.Dir.WriteSecret(a.number, []byte(secret.Encode())); err != nil {
		return fmt.Errorf("publish secret: %w", err)
	}
	a.environ = append(a.environ, envSecretIn+"="+a.secret)
	return nil
}

// removeSecret removes the file with the secret. If the launcher is killed first, the next
// launcher removes the file.
func (a *attempt) removeSecret() {
	if a.secret != "" {
		_ = a.o.Dir.RemoveSecret(a.secret)
	}
}

// removeSecretWhenJoined removes the file with the secret when all ranks have joined: they have read it,
// and no other process needs it. stop removes the file in any case.
func (a *attempt) removeSecretWhenJoined() (stop func()) {
	stopped := make(chan struct{})
	go func() {
		select {
		case <-a.server.Joined():
			a.removeSecret()
		case <-stopped:
		}
	}()
	return func() { close(stopped); a.removeSecret() }
}

// rounds returns the decisions that the launcher makes for the ranks, by the name of their round. The
// decisions also record the step ID, and that all components are ready.
func (a *attempt) rounds() map[string]rendezvous.Decide {
	r := newNegotiation(a.o.Job, a.o.Site, a.o.Dir.WriteNetwork, a.o.Say).rounds()
	network := r[roundNetwork]
	r[roundNetwork] = func(payloads [][]byte) ([][]byte, error) {
		var p nodeReport
		if json.Unmarshal(payloads[0], &p) == nil {
			a.mu.Lock()
			a.step = p.Step
			a.mu.Unlock()
		}
		return network(payloads)
	}
	if n := len(a.o.Job.Components); n > 0 {
		a.startable = make(chan struct{})
		ready := r[componentReadyRound(n-1)]
		var once sync.Once
		r[componentReadyRound(n-1)] = func(payloads [][]byte) ([][]byte, error) {
			once.Do(func() { close(a.startable) })
			return ready(payloads)
		}
	}
	return r
}

// mayHaveStarted reports whether the program of a rank may have started: it starts after all
// components.
func (a *attempt) mayHaveStarted() bool {
	select {
	case <-a.startable:
		return true
	default:
		return a.startable == nil
	}
}

// run starts the ranks, supervises them, and returns when no process is left.
func (a *attempt) run(ctx context.Context) (Result, error) {
	defer a.server.Close()
	defer a.removeSecretWhenJoined()()
	defer a.startPublishing()()
	defer a.recordProgress()()
	var started ranks
	var err error
	if a.inStep() {
		started, err = startStep(a)
	} else {
		defer a.cancelSteps(ctx)()
		started, err = startLocal(a)
	}
	if err != nil {
		return Result{}, err
	}
	ended := make(chan error, 1)
	go func() { ended <- started.wait() }()
	if a.pendingStop != nil {
		a.forwardStop(a.pendingStop)
	}

	cancelled := a.supervise(ctx, started, ended)
	if a.stopFile != nil {
		// Do not write to the run directory after the end of the attempt.
		select {
		case <-a.stopFile:
		case <-time.After(stopFileTimeout): // the file system hangs
		}
	}
	outcome := a.server.Outcome()
	addProcessEnds(&outcome, started.processEnds(), a.killed)
	r := Result{Failure: outcome.First, Ranks: outcome.Ranks, Exit: outcome.Exit, NearEnd: a.nearEnd}
	r.StopUnhandled = !slices.ContainsFunc(r.Ranks, func(s rendezvous.RankStatus) bool { return !s.StopUnhandled })
	if a.stopped && r.Failure == nil {
		var codes []int
		for _, s := range r.Ranks {
			codes = append(codes, s.Exit)
		}
		// A rank that reports a stop decides, even if the signal killed other ranks first.
		if code, stopped := stopCodesOf(a.o.Job).combine(codes); stopped {
			r.Exit = code
			r.NotStarted = !a.mayHaveStarted()
			r.ReportedSave = code == exitStopped && !r.StopUnhandled && !r.NotStarted && a.o.Job.Command != nil
		}
	}
	switch {
	case cancelled:
		r.Exit = exitCanceled
	case r.Failure != nil && r.Failure.Rank < 0 && r.Failure.State != rendezvous.Lost:
		r.Exit = exitFailed // no rank failed; for example, the ranks could not agree on a network
	case r.Failure != nil && r.Failure.State != rendezvous.Failed:
		r.Exit = exitLost
	case r.Failure != nil && r.Exit == 0:
		r.Exit = exitFailed
	}
	return r, nil
}

// supervise returns after all processes have ended. It reports whether the user canceled the
// attempt.
func (a *attempt) supervise(ctx context.Context, started ranks, ended <-chan error) (cancelled bool) {
	left := make(chan struct{}) // closed when every rank has left the rendezvous
	waiting, stopWaiting := context.WithCancel(context.Background())
	defer stopWaiting()
	go func() {
		if _, err := a.server.Wait(waiting); err == nil {
			close(left)
		}
	}()
	finished, failing, done := left, a.server.Failing(), ctx.Done()
	var force <-chan time.Time
	startKillTimer := func() {
		if force == nil {
			force = time.After(killGrace)
		}
	}
	for {
		select {
		case err := <-ended:
			a.awaitReports(left, lastMessageTimeout)
			a.recordStartFailure(err)
			return cancelled
		case s := <-a.o.Signals:
			if !a.stopped || s != os.Interrupt {
				a.forwardStop(s)
			} else if time.Since(a.stoppedAt) >= signalRepeatInterval {
				cancelled = true
				a.server.Abort(rendezvous.Failure{Rank: -1, Reason: "canceled by a second interrupt"})
			}
		case <-a.limitNear:
			a.limitNear = nil
			a.sendStop(reasonTimeLimit)
		case <-done:
			done, cancelled = nil, true
			a.server.Abort(rendezvous.Failure{Rank: -1, Reason: "cancelled"})
		case <-failing:
			failing = nil
			startKillTimer()
		case <-finished:
			// The processes of the ranks must end soon.
			finished = nil
			startKillTimer()
		case <-force:
			a.recordKilled()
			started.kill(context.WithoutCancel(ctx))
			force = time.After(killGrace)
		}
	}
}

// recordKilled records the ranks that did not end in time and that the launcher now kills.
func (a *attempt) recordKilled() {
	if a.killed != nil {
		return
	}
	a.killed = map[int]bool{}
	for _, r := range a.server.Outcome().Ranks {
		a.killed[r.Rank] = r.State == rendezvous.Joined
	}
}

// forwardStop forwards a stop request to the ranks.
func (a *attempt) forwardStop(s os.Signal) {
	if a.o.Allocation == nil || s != syscall.SIGTERM || a.stopped {
		a.sendStop(stopReasonOf(s))
		return
	}
	a.announceStop(reasonTerminated)
	// When Slurm cancels a job, it also sends SIGTERM to the ranks. Give that signal time to
	// arrive, so that a user's program does not receive it twice.
	time.AfterFunc(2*time.Second, func() { a.server.Stop(string(reasonTerminated)) })
}

func (a *attempt) sendStop(reason stopReason) {
	if a.stopped {
		return
	}
	a.announceStop(reason)
	a.server.Stop(string(reason))
}

func (a *attempt) announceStop(reason stopReason) {
	a.stopped, a.nearEnd = true, reason != reasonTerminated
	a.mu.Lock()
	a.stopReason = string(reason)
	a.mu.Unlock()
	a.stopFile = writeStopFile(a.o.Dir, string(reason))
	a.o.Say(fmt.Sprintf("asking all ranks to save and stop: %s", reason))
	a.stoppedAt = time.Now()
}

const (
	// signalRepeatInterval is the time after a stop request in which an interrupt only repeats the
	// request. timeout(1) sends each signal to the launcher and to its process group, and on Control-C
	// the terminal also sends it. A user cannot send a second interrupt that fast.
	signalRepeatInterval = 500 * time.Millisecond
	// lastMessageTimeout is how long the last message of a rank may take after its process has ended.
	// The kernel closes the connection of a process that was killed, so only a lost node or
	// network can take longer.
	lastMessageTimeout = time.Minute
	// stopFileTimeout is how long the end of an attempt waits for the stop file.
	stopFileTimeout = 5 * time.Second
	// joinGrace is how long the first messages of ranks may take if not all of them have joined.
	joinGrace = 2 * time.Second
)

// awaitReports waits, after all processes have ended, until the server has read the last message
// of each rank, which has its exit code. Without this wait, a failed rank would count as complete.
// A rank without such a message is recorded as lost after the timeout.
func (a *attempt) awaitReports(finished <-chan struct{}, timeout time.Duration) {
	select {
	case <-finished:
		return
	case <-a.server.Joined():
	case <-time.After(joinGrace):
		// Some ranks will never join, for example because another one failed before. Only the last
		// messages of joined ranks can still arrive.
		if !slices.ContainsFunc(a.server.Outcome().Ranks, func(r rendezvous.RankStatus) bool { return r.State == rendezvous.Joined }) {
			return
		}
	}
	select {
	case <-finished:
		return
	case <-time.After(timeout):
	}
	for _, r := range a.server.Outcome().Ranks {
		if r.State == rendezvous.Joined {
			a.server.Abort(rendezvous.Failure{Rank: r.Rank, Host: r.Host, State: rendezvous.Lost, Step: r.Step, Phase: r.Phase,
				Reason: fmt.Sprintf("rank %d on %s was lost: its process ended, but its exit code did not arrive within %v", r.Rank, r.Host, timeout)})
		}
	}
}

// recordStartFailure records a failure if processes ended before they joined the rendezvous: the
// program could not be started, or srun rejected the step.
func (a *attempt) recordStartFailure(err error) {
	o := a.server.Outcome()
	missing := 0
	for _, r := range o.Ranks {
		if r.State == rendezvous.Missing {
			missing++
		}
	}
	if missing == 0 || o.First != nil {
		return
	}
	f := rendezvous.Failure{Rank: -1, State: rendezvous.Missing, Phase: "start",
		Reason: fmt.Sprintf("%d of %d ranks exited before they joined", missing, a.world),
		Advice: "run `ddpbatch logs " + a.o.Dir.Path + "` to see their output"}
	if err != nil {
		f.Reason = fmt.Sprintf("start ranks: %v", err)
		f.Advice = cmp.Or(hints.Of(err), f.Advice)
	}
	a.server.Abort(f)
}

// reachableAddresses returns all addresses of this node that other nodes may be able to reach.
// The handshake detects an address that belongs to another host. Addresses of the interface
// with the default route come first. If there is a separate data network, that interface is on
// the management network. Ranks must be able to report a data network that fails.
func reachableAddresses(inv netif.Inventory) []string {
	management := ""
	for _, r := range inv.Routes {
		if r.Dst.Bits() == 0 && management == "" {
			management = r.Dev
		}
	}
	var first, rest []string
	for _, l := range inv.Links {
		for _, p := range l.Addrs {
			switch a := p.Addr(); {
			case !a.IsGlobalUnicast() || a.IsLinkLocalUnicast():
			case l.Name == management:
				first = append(first, a.String())
			default:
				rest = append(rest, a.String())
			}
		}
	}
	return append(first, rest...)
}
