package launch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/process"
)

// Variables of a component, in addition to the variables with the addresses of all components.
const (
	componentVariable        = process.ComponentVariable
	componentHostVariable    = "DDPBATCH_COMPONENT_HOST"
	componentPortVariable    = "DDPBATCH_COMPONENT_PORT"
	componentAddressVariable = "DDPBATCH_COMPONENT_ADDRESS"
	componentReadyVariable   = "DDPBATCH_READY_FILE"
)

// Rounds of the rendezvous for components. The round roundComponentReady is followed by the index of
// a component.
const (
	roundComponents     = "components"      // addresses of all components, sent to all
	roundComponentReady = "component-ready" // all ranks wait until a component is ready
	roundProgramsEnded  = "programs-ended"  // ranks with components wait until all programs have ended
)

// portChoices is the number of ports that are tried to find one that no other component has.
const portChoices = 100

// A componentAddress is the address of a component on one node.
type componentAddress struct {
	Index int    `json:"index"` // in the job file
	Node  int    `json:"node"`
	Host  string `json:"host"` // IP address
	Port  int    `json:"port"`
}

func (a componentAddress) String() string { return net.JoinHostPort(a.Host, strconv.Itoa(a.Port)) }

// components are the components of a job, as one rank sees them. The first rank of each node starts
// the components of its node. A nil *components is a job without components.
//
// Components start in the order of the job file, each when the components before it are ready on
// all nodes. The program starts last, and components stop after the programs of all ranks.
type components struct {
	r   *Rank
	o   ProgramOptions
	all []componentAddress // sorted by index and node
	own []*component
	log *componentRecorder // nil without own components

	mu       sync.Mutex
	err      error
	failed   chan struct{} // closed when err is set
	stopping chan struct{} // closed when a stop was requested
	noted    bool          // stopping is closed
}

var errStopRequested = errors.New("a stop was requested before the program started")

type componentError struct{ error }

func (e componentError) Unwrap() error { return e.error }

// startComponents starts the components of this node, and waits until the components of all nodes
// are ready. All ranks must call it. Environ is the environment of the program. If a stop is
// requested in the meantime, the error is errStopRequested. The caller calls stop, also after an
// error.
func (r *Rank) startComponents(ctx context.Context, o ProgramOptions, environ []string, workdir string, masterPort int) (*components, error) {
	if len(r.job.Components) == 0 {
		return nil, nil
	}
	c := &components{r: r, o: o, failed: make(chan struct{}), stopping: make(chan struct{})}
	if err := c.exchangeAddresses(ctx, masterPort); err != nil {
		return c, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	started, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-r.Session.Stopping():
		case <-o.Signals:
		case <-c.failed:
			cancel(c.failure())
			return
		case <-started:
			return
		}
		c.noteStop()
		cancel(errStopRequested)
	}()
	err := c.startAll(ctx, environ, workdir)
	close(started)
	<-watched
	if cause := context.Cause(ctx); cause != nil && (err == nil || errors.Is(err, context.Canceled) || errors.Is(err, cause)) {
		err = cause
	}
	cancel(nil)
	return c, err
}

// exchangeAddresses chooses the ports of this node, and receives the addresses of all components.
func (c *components) exchangeAddresses(ctx context.Context, masterPort int) error {
	r := c.r
	ctx, cancel := r.withJoinTimeout(ctx)
	defer cancel()
	used := []int{masterPort}
	offers := []componentAddress{}
	for i := range r.job.Components {
		if r.Info.LocalRank != 0 || !r.job.Components[i].RunsOn(r.Info.NodeRank, r.Info.Nodes) {
			continue
		}
		port, err := findDistinctPort(used)
		if err != nil {
			return err
		}
		used = append(used, port)
		offers = append(offers, componentAddress{i, r.Info.NodeRank, r.Choice.Addr.String(), port})
	}
	return r.exchange(ctx, roundComponents, offers, &c.all)
}

func findDistinctPort(used []int) (port int, err error) {
	for range portChoices {
		if port, err = findFreePort(); err != nil || !slices.Contains(used, port) {
			return port, err
		}
	}
	return 0, fmt.Errorf("find a free port: %d ports in sequence belong to other components", portChoices)
}

// decideComponents merges the addresses of all nodes.
func decideComponents(payloads [][]byte) ([][]byte, error) {
	all := []componentAddress{}
	for rank, p := range payloads {
		var offers []componentAddress
		if err := json.Unmarshal(p, &offers); err != nil {
			return nil, fmt.Errorf("decode the components of rank %d: %w", rank, err)
		}
		all = append(all, offers...)
	}
	slices.SortFunc(all, func(a, b componentAddress) int { return cmp.Or(a.Index-b.Index, a.Node-b.Node) })
	text, err := json.Marshal(all)
	return slices.Repeat([][]byte{text}, len(payloads)), err
}

// componentReadyRound returns the name of the round after the start of a component.
func componentReadyRound(index int) string { return fmt.Sprintf("%s-%d", roundComponentReady, index) }

// startAll starts the components of this node in the order of the job file.
func (c *components) startAll(ctx context.Context, environ []string, workdir string) error {
	r := c.r
	for i := range r.job.Components {
		spec := &r.job.Components[i]
		for _, at := range c.all {
			if at.Index != i || at.Node != r.Info.NodeRank || r.Info.LocalRank != 0 {
				continue
			}
			component := c.newComponent(spec, at, environ, workdir)
			if c.log == nil {
				c.log = newComponentRecorder(r.dir, component.attempt, r.Info.NodeRank, c.o.Say)
			}
			c.own = append(c.own, component)
			if err := component.start(ctx); err != nil {
				return err
			}
		}
		if err := c.awaitAll(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// awaitAll waits until a component is ready on all nodes. It waits longer than ready_timeout, so that
// the rank that starts the component reports the failure first.
func (c *components) awaitAll(ctx context.Context, index int) error {
	spec := &c.r.job.Components[index]
	limit := time.Duration(spec.ReadyTimeout) + time.Duration(c.r.job.Network.JoinTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("component %q was not ready on all nodes within %s", spec.Name, limit))
	defer cancel()
	_, err := c.r.Session.Exchange(ctx, componentReadyRound(index), []byte("ready"))
	return err
}

// setVariables sets the variables with the addresses of all components. With every_node, the address
// of a component is its address on this node.
func (c *components) setVariables(environ []string) []string {
	if c == nil {
		return environ
	}
	set := func(name, value string) { environ = append(removeVars(environ, name), name+"="+value) }
	for i := range c.r.job.Components {
		name := c.r.job.Components[i].Name
		var addresses []string
		var near componentAddress
		for _, at := range c.all {
			if at.Index != i {
				continue
			}
			if addresses = append(addresses, at.String()); len(addresses) == 1 || at.Node == c.r.Info.NodeRank {
				near = at
			}
		}
		set(name.Variable(jobs.ComponentHost), near.Host)
		set(name.Variable(jobs.ComponentPort), strconv.Itoa(near.Port))
		set(name.Variable(jobs.ComponentAddress), near.String())
		set(name.Variable(jobs.ComponentAddresses), strings.Join(addresses, ","))
	}
	return environ
}

// componentPlaceholders returns the values of the placeholders of all components from the variables
// that setVariables has set.
func componentPlaceholders(all []jobs.Component, environ []string) map[string]string {
	values := map[string]string{}
	for i := range all {
		for _, p := range jobs.ComponentProperties {
			if value, ok := lookupIn(environ)(all[i].Name.Variable(p)); ok {
				values[all[i].Name.Placeholder(p)] = value
			}
		}
	}
	return values
}

// noteStop records that a stop was requested. Components that end from then on have not failed.
func (c *components) noteStop() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.noted {
		c.noted = true
		close(c.stopping)
	}
}

// isStopping reports whether a stop was requested.
func (c *components) isStopping() bool {
	select {
	case <-c.stopping:
		return true
	case <-c.r.Session.Stopping():
		return true
	default:
		return false
	}
}

// fail records the failure of a component.
func (c *components) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		close(c.failed)
	}
}

func (c *components) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// failing returns a channel that is closed when a component of this node has failed.
func (c *components) failing() <-chan struct{} {
	if c == nil {
		return nil
	}
	return c.failed
}

// awaitPrograms waits until the programs of all ranks have ended without a failure, if this rank has
// components. It returns an error if one of its components fails, or if the attempt ends. A rank
// without components only reports that its program has ended.
func (c *components) awaitPrograms(ctx context.Context) error {
	if c == nil {
		return nil
	}
	if len(c.own) == 0 {
		return c.r.Session.Contribute(roundProgramsEnded, []byte("ended"))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		for {
			select {
			case <-c.failed:
				cancel(c.failure())
				return
			case <-c.o.Signals: // Slurm signals the components at the same time
				c.noteStop()
			case <-ctx.Done():
				return
			}
		}
	}()
	_, err := c.r.Session.Exchange(ctx, roundProgramsEnded, []byte("ended"))
	if cause := c.failure(); err != nil && cause != nil {
		return cause
	}
	return err
}

// stop stops the components of this node, at the same time. If quick is set, or the attempt has
// failed, they have little time.
func (c *components) stop(quick bool) {
	if c == nil {
		return
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() { // a stop request leaves the components less time
		select {
		case <-c.r.Session.Stopping():
		case <-c.o.Signals:
		case <-ended:
			return
		}
		c.noteStop()
	}()
	var all sync.WaitGroup
	for _, component := range c.own {
		all.Go(func() { component.stop(quick) })
	}
	all.Wait()
	if c.log != nil {
		c.log.close()
	}
}

// graceOf returns the time between SIGTERM and SIGKILL. After a stop request, and near the time limit,
// it leaves time for the end of the job and its requeue.
func (c *components) graceOf(spec *jobs.Component, quick bool) time.Duration {
	grace := time.Duration(spec.StopGrace)
	if quick || c.r.Session.Context().Err() != nil {
		return min(grace, killGrace/2)
	}
	if c.isStopping() {
		grace = min(grace, c.r.job.StoppedGrace())
	}
	return fitGrace(grace, c.o.Environ)
}

// fitGrace returns grace, or half of the time until the time limit of the job if that is shorter.
func fitGrace(grace time.Duration, environ []string) time.Duration {
	if end, known := jobEnd(environ); known && time.Now().Before(end) { // otherwise the limit was extended
		return min(grace, time.Until(end)/2)
	}
	return grace
}

// addr returns the address on which a component must listen.
func (a componentAddress) addr() netip.Addr {
	addr, _ := netip.ParseAddr(a.Host) // exchangeAddresses has formatted it
	return addr
}
