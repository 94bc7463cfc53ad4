package launch

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/listeners"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
	"github.com/ddpbatch/ddpbatch/jobs"
)

const (
	// portWatchTime is how long a rank waits for its program to listen on MASTER_PORT. A program
	// that imports its modules from a busy file system takes minutes.
	portWatchTime = 10 * time.Minute
	// minPortWatchInterval and maxPortWatchInterval limit the interval between two searches for
	// listening sockets. A search takes less than 1 ms on most nodes. Without netlink, another user
	// with many sockets can make it slow, and must not choose how long the guard does not search.
	minPortWatchInterval = 50 * time.Millisecond
	maxPortWatchInterval = time.Second
	// maxPortRestarts is how often the launcher starts the ranks again because of a taken port. These
	// starts are not restarts of the program.
	maxPortRestarts = 3
)

// portWatchInterval returns the interval after a search that took the given time. It limits the
// searches to 5% of a core, unless the maximum applies.
func portWatchInterval(search time.Duration) time.Duration {
	return min(max(minPortWatchInterval, 20*search), maxPortWatchInterval)
}

// A portTakenError reports that a process that does not belong to the program has the program's
// MASTER_PORT, or the port of a component.
type portTakenError struct {
	what  string // the port
	owner string // what is known about the process
	cause error  // how the program ended; nil if it did not fail
}

func (e *portTakenError) Error() string {
	text := fmt.Sprintf("another process uses %s: %s", e.what, e.owner)
	if e.cause != nil {
		text += "; " + e.cause.Error()
	}
	return text
}

func (e *portTakenError) Unwrap() error { return e.cause }

// Hint returns the fix.
func (*portTakenError) Hint() string {
	return "find out what uses the port on this node, or submit again with slurm.exclusive = true"
}

// PortTaken marks the error for the rendezvous.
func (*portTakenError) PortTaken() bool { return true }

// A portGuard finds other users who take the port of a program between its choice and its use. It
// runs in rank 0, on whose host the program is to listen, or in the rank that starts a component.
//
// Only a listening socket is evidence against a user. Listeners of root are trusted, because daemons
// of root run programs in containers. If the listeners cannot be read, the guard finds nothing.
type portGuard struct {
	addr netip.Addr // on which the program is to listen; invalid for any address except loopback
	port int
	what string // the port, for messages
	// alone reports that no other rank connects to the port. Then the guard only explains why the
	// program failed: a program that does not use the port must not end because of it.
	alone bool
	// taken is closed when err is set during the watch, unless alone.
	taken chan struct{}
	until time.Time

	mu    sync.Mutex
	bound bool // the program, or a daemon of root for it, has listened on the port
	err   *portTakenError
}

// newPortGuard returns a guard for the port that the ranks have agreed on. It returns nil in ranks
// other than rank 0, and for MPI programs, which may not use the port. A nil guard does nothing.
func (r *Rank) newPortGuard(host string, port int) *portGuard {
	addr, err := netip.ParseAddr(host)
	if err != nil || r.Info.Rank != 0 || startsMPI(r.job) {
		return nil
	}
	g := &portGuard{addr: addr, port: port, what: "MASTER_PORT " + strconv.Itoa(port), alone: r.Info.WorldSize == 1, taken: make(chan struct{}), until: time.Now().Add(portWatchTime)}
	if r.job.RunsOnce() { // the program starts the processes that connect to the port
		g.alone = false
		if r.job.Slurm.Nodes > 1 { // they know only the name of this node
			g.addr = netip.Addr{}
		}
	}
	return g
}

// matters reports whether other ranks would connect to a listener.
func (g *portGuard) matters(l listeners.Listener) bool {
	if g.addr.IsValid() {
		return l.Accepts(g.addr)
	}
	return !l.Addr.Addr().IsLoopback()
}

// checkUnused returns an error if a process already listens on the port. The program must not have
// started.
func (g *portGuard) checkUnused() error {
	if g == nil {
		return nil
	}
	found, _ := listeners.On(g.port)
	for _, l := range found {
		return &portTakenError{what: g.what, owner: describeListener(l)}
	}
	return nil
}

// watch searches for listeners of other users until the program listens, it has ended, or
// portWatchTime is over.
func (g *portGuard) watch(ended <-chan struct{}) {
	if g == nil {
		return
	}
	go func() {
		for {
			began := time.Now()
			if g.examine(); g.isDecided() || time.Now().After(g.until) {
				return
			}
			select {
			case <-ended:
				return
			case <-time.After(portWatchInterval(time.Since(began))):
			}
		}
	}()
}

// isDecided reports whether the program or another user has the port.
func (g *portGuard) isDecided() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.bound || g.err != nil
}

// examine reads the listeners once. A listener of another user counts if the other ranks would
// connect to it.
func (g *portGuard) examine() {
	found, err := listeners.On(g.port)
	if err != nil {
		return
	}
	g.decide(found)
}

// decide sets bound or err if one of the listeners matters. A listener of another user has precedence over
// the program's own: both can listen on different addresses of the port.
func (g *portGuard) decide(found []listeners.Listener) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.bound || g.err != nil {
		return
	}
	found = slices.DeleteFunc(found, func(l listeners.Listener) bool { return !g.matters(l) })
	if i := slices.IndexFunc(found, func(l listeners.Listener) bool { return !safefile.IsTrusted(l.UID) }); i >= 0 {
		g.err = &portTakenError{what: g.what, owner: describeListener(found[i])}
		if !g.alone {
			close(g.taken)
		}
		return
	}
	g.bound = len(found) > 0
}

// takenDuringWatch returns a channel that is closed when another user has taken the port.
func (g *portGuard) takenDuringWatch() <-chan struct{} {
	if g == nil {
		return nil
	}
	return g.taken
}

// foundTaken returns the error if another user has the port, now or at an earlier time, or nil.
func (g *portGuard) foundTaken() error {
	if g == nil {
		return nil
	}
	if !g.isDecided() && time.Now().Before(g.until) {
		g.examine()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		return nil
	}
	return g.err
}

// explain returns a portTakenError with the given cause if the port is the likely reason why the
// program failed. Otherwise it returns cause. No process of the program may be left.
func (g *portGuard) explain(cause error) error {
	if g == nil || cause == nil {
		return cause
	}
	var taken *portTakenError
	if errors.As(cause, &taken) {
		return cause
	}
	if errors.As(g.foundTaken(), &taken) {
		return &portTakenError{g.what, taken.owner, cause}
	}
	g.mu.Lock()
	bound := g.bound
	g.mu.Unlock()
	if bound || time.Now().After(g.until) {
		return cause
	}
	// The program has never listened. A listener on any address of this host prevents it from
	// listening on all addresses. A bound socket that does not listen has the same effect, and is
	// not in the list of listeners.
	if found, err := listeners.On(g.port); err == nil {
		if i := slices.IndexFunc(found, func(l listeners.Listener) bool { return !safefile.IsTrusted(l.UID) }); i >= 0 {
			return &portTakenError{g.what, describeListener(found[i]), cause}
		}
	}
	if _, err := tryPort(g.port); errors.Is(err, syscall.EADDRINUSE) {
		return &portTakenError{g.what, "it does not belong to the program", cause}
	}
	return cause
}

// describeListener describes a listener in an error.
func describeListener(l listeners.Listener) string {
	return fmt.Sprintf("user %s listens on %s", listeners.UserName(l.UID), l.Addr)
}

// masterPortVariables returns the variables with the port for a launcher of the program. A variable
// is visible to this user only, and an argument to every user of the node.
func masterPortVariables(launcher jobs.Launcher, port int) []string {
	if launcher == jobs.LauncherTorchrun {
		return []string{torchrunPortVariable + "=" + strconv.Itoa(port)}
	}
	return []string{"MASTER_PORT=" + strconv.Itoa(port)}
}

// torchrunPortVariable sets torchrun's --master_port (torch/distributed/argparse_util.py, since
// PyTorch 1.9).
const torchrunPortVariable = "PET_MASTER_PORT"

// portRestartLine returns the message about a start with a different port.
func portRestartLine(failure error, number int) string {
	return fmt.Sprintf("%s; starting again with a different port (%d of %d; not a restart of the program)",
		strings.TrimSuffix(failure.Error(), "."), number, maxPortRestarts)
}
