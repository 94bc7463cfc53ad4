package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/launch/output"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/nccl"
	"github.com/ddpbatch/ddpbatch/netif"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/templates/sites"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// joinMargin is how much longer a rank waits than the launcher. The launcher knows which ranks
// are missing, so its error must come first.
const joinMargin = 10 * time.Second

// JoinOptions describe a rank that starts.
type JoinOptions struct {
	Job           *jobs.Job // with resolved paths and the site's defaults
	Site          *sites.Profile
	Dir           rundir.Dir
	Info          RankInfo
	Program, Spec string // digests
	Lookup        func(string) (string, bool)
	// Say receives messages for the user, one line at a time.
	Say func(line string)
}

// A Rank is a process that has joined its attempt.
type Rank struct {
	Info    RankInfo
	Session *rendezvous.Session
	// Choice is this node's part of the network that all ranks agreed on.
	Choice netif.Choice

	job     *jobs.Job
	site    *sites.Profile
	perNode int // number of ranks on this node; with torchrun, of its workers
	secret  wire.Secret
	network nccl.Job // what NCCL may use of the network
	dir     rundir.Dir
	lookup  func(string) (string, bool)
	say     func(line string)
	unwatch func()
	// failedWorkers is 0, or one plus the restart count of the torchrun workers among which
	// one has failed. It returns to 0 when torchrun has replaced them.
	failedWorkers atomic.Int64
	capture       *output.Capture    // of the program's output; nil without a copy
	attempt       int                // number of the attempt across all launchers; for a program only
	server        *rendezvous.Server // in rank 0, if no launcher serves the rendezvous
}

// Join finds the rendezvous, joins it, agrees with the other ranks on a network, and checks it. The
// rendezvous is served by the launcher, or by rank 0 if ddpbatch's launcher did not start the
// ranks. If Join fails after it has joined, it returns a Rank together with the error. The caller must
// call Leave on every Rank that Join returns.
func Join(ctx context.Context, o JoinOptions) (*Rank, error) {
	timeout := time.Duration(o.Job.Network.JoinTimeout) + joinMargin
	joining, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not joined within %s", timeout))
	defer cancel()
	r := &Rank{Info: o.Info, job: o.Job, site: o.Site, dir: o.Dir, lookup: o.Lookup, say: o.Say}
	id := rendezvous.Identity{Rank: o.Info.Rank, WorldSize: o.Info.WorldSize, Host: o.Info.Host, PID: os.Getpid(),
		Program: o.Program, Spec: o.Spec}
	addresses, launched := launcherAddresses(o.Lookup)
	var err error
	if !launched {
		err = r.joinWithoutLauncher(joining, o, id)
	} else if r.secret, err = loadSecret(joining, o); err == nil {
		r.Session, err = rendezvous.Join(joining, addresses, r.secret, id)
	} else {
		// Without a report the launcher would wait for this rank. The caller gets the error in
		// any case.
		_ = Report(ctx, o.Lookup, o.Info, err)
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	if err := r.findHostRanks(joining); err != nil {
		return r, err
	}
	if err := r.setPerNode(); err != nil {
		return r, err
	}
	if err := r.negotiateNetwork(joining); err != nil { // returns when all ranks have joined
		return r, err
	}
	checking, stop := r.withJoinTimeout(ctx)
	defer stop()
	if err := r.checkConnectivity(checking); err != nil {
		return r, err
	}
	r.watchNetwork(o.Say)
	return r, nil
}

// setPerNode sets the number of ranks of this node, from the launcher's list if there is one.
func (r *Rank) setPerNode() error {
	r.perNode = r.job.RanksOn(r.Info.NodeRank)
	text, ok := r.lookup(envPerNode)
	if !ok {
		return nil
	}
	list, err := slurm.ParseTasksPerNode(text)
	switch {
	case err != nil:
		return fmt.Errorf("variable %s: %w", envPerNode, err)
	case r.Info.NodeRank >= len(list):
		return fmt.Errorf("variable %s: %q has no number for node %d", envPerNode, text, r.Info.NodeRank)
	}
	r.perNode = list[r.Info.NodeRank]
	return nil
}

// reportTimeout limits a report to the launcher. The rank has nothing else to do.
const reportTimeout = 15 * time.Second

// Report reports to the launcher that this rank cannot start, and why. It returns an error if
// there is no launcher, or if the launcher cannot be reached.
func Report(ctx context.Context, lookup func(string) (string, bool), at RankInfo, problem error) error {
	addresses, launched := launcherAddresses(lookup)
	if !launched {
		return errNoLauncher
	}
	text, _ := lookup(envReportKey)
	key, err := wire.ParseSecret(text)
	if err != nil {
		return fmt.Errorf("variable %s: %w", envReportKey, err)
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	id := rendezvous.Identity{Rank: at.Rank, WorldSize: at.WorldSize, Host: at.Host, PID: os.Getpid()}
	return rendezvous.ReportProblem(ctx, addresses, key, id, problem)
}

var errNoLauncher = errors.New("no launcher started this rank")

// launcherAddresses returns the addresses of the launcher. It returns false if no launcher
// started this rank.
func launcherAddresses(lookup func(string) (string, bool)) (addresses []string, launched bool) {
	text, launched := lookup(envAddresses)
	return strings.Split(text, ","), launched
}

// negotiateNetwork sends this node's inventory, and receives its part of the common network.
func (r *Rank) negotiateNetwork(ctx context.Context) error {
	report := nodeReport{Node: r.Info.NodeRank, Host: r.Info.Host, Step: r.Info.StepID}
	if r.Info.LocalRank == 0 {
		inventory, err := netif.Collect(ctx)
		if err != nil {
			return fmt.Errorf("collect network interfaces: %w", err)
		}
		report.Inventory = &inventory
		report.Fast = findFastInterface(ctx, r.Info.Host, r.site, inventory)
	}
	var a networkDecision
	if err := r.exchange(ctx, roundNetwork, report, &a); err != nil {
		return err
	}
	r.setNetwork(a)
	return nil
}

// exchange contributes v to a round as JSON, or nothing if v is nil, and decodes the reply to this rank.
func (r *Rank) exchange(ctx context.Context, round string, v, reply any) (err error) {
	var payload []byte
	if v != nil {
		if payload, err = json.Marshal(v); err != nil {
			return err
		}
	}
	text, err := r.Session.Exchange(ctx, round, payload)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, reply); err != nil {
		return fmt.Errorf("decode the reply of round %q: %w", round, err)
	}
	return nil
}

func (r *Rank) setNetwork(a networkDecision) { r.Choice, r.network = a.Choice, a.Job }

// Connect builds the communicator of the built-in trainer over the agreed network.
func (r *Rank) Connect(ctx context.Context) (collective.Communicator, error) {
	if r.Info.WorldSize == 1 {
		return collective.SingleRank{}, nil
	}
	if usesMPI(r.job) {
		return r.connectMPI(ctx)
	}
	timeout := time.Duration(r.job.Network.JoinTimeout)
	ip := net.IP(r.Choice.Addr.AsSlice())
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: ip, Zone: r.Choice.Addr.Zone()})
	if err != nil {
		return nil, fmt.Errorf("listen on %s (%s): %w", r.Choice.Interface, ip, err)
	}
	soon, cancel := r.withJoinTimeout(ctx)
	defer cancel()
	addrs, nodes, err := r.peers(soon, listener)
	if err != nil {
		listener.Close()
		return nil, err
	}
	return collective.Connect(ctx, listener, collective.Options{
		Rank: r.Info.Rank, Addrs: addrs, Nodes: nodes, Memory: true, Secret: r.secret, Source: ip,
		ConnectTimeout: timeout, Timeout: time.Duration(r.job.Network.CollectiveTimeout),
		Authenticate: r.job.Network.Integrity == jobs.IntegrityMAC,
	})
}

// peers sends this rank's address to all ranks. It returns the addresses and the node ranks of
// all ranks.
func (r *Rank) peers(ctx context.Context, listener *net.TCPListener) (addrs []string, nodes []int, err error) {
	at := listener.Addr().(*net.TCPAddr).AddrPort()
	mine := rendezvous.Peer{Addr: netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), Node: r.Info.NodeRank}
	all, err := r.Session.Peers(ctx, roundPeers, mine)
	for _, p := range all {
		addrs, nodes = append(addrs, p.Addr.String()), append(nodes, p.Node)
	}
	return addrs, nodes, err
}

// withJoinTimeout limits the time of what all ranks do right after they have joined. Without the
// limit, a rank that hangs in this phase would hold the job until its time limit.
func (r *Rank) withJoinTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	timeout := time.Duration(r.job.Network.JoinTimeout)
	return context.WithTimeoutCause(ctx, timeout, fmt.Errorf("a rank that joined did not respond within %s", timeout))
}

// Leave reports the exit code that this process will have, and closes the Rank. If this rank serves
// the rendezvous, Leave waits for the other ranks as Close does.
func (r *Rank) Leave(exit int, failure error) {
	if r.unwatch != nil {
		r.unwatch()
	}
	if r.Session != nil {
		// The server detects a lost connection on its own.
		_ = r.Session.Leave(exit, failure)
	}
	r.Close()
}

// Close stops the rendezvous if this rank serves it. It waits at most killGrace for the other
// ranks.
func (r *Rank) Close() {
	if r.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), killGrace)
	defer cancel()
	_, _ = r.server.Wait(ctx)
	r.server.Close()
}
