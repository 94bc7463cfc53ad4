package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/nccl"
	"github.com/ddpbatch/ddpbatch/netif"
	"github.com/ddpbatch/ddpbatch/netif/probe"
	"github.com/ddpbatch/ddpbatch/templates/sites"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

// The rounds that ranks exchange through the rendezvous, in this order.
const (
	roundHosts   = "hosts"   // which ranks share a host, if the launcher does not pass it
	roundNetwork = "network" // from inventories to the choice for each node
	roundPeers   = "peers"   // built-in trainer: the address of each rank, sent to all
	roundMaster  = "master"  // user's program: rank 0's address and port
	roundDevices = "devices" // user's program on GPUs: the GPUs that each rank sees
)

// A nodeReport is a rank's input to the choice of the network. One rank of each node adds the
// inventory.
type nodeReport struct {
	Node      int              `json:"node"`
	Host      string           `json:"host"`
	Step      string           `json:"step,omitempty"`
	Inventory *netif.Inventory `json:"inventory,omitempty"`
	Fast      string           `json:"fast,omitempty"` // interface with the address of the site's name for this node
}

// networkNegotiation makes the ranks of an attempt agree on a network. It runs in the process that
// serves the rendezvous, and decides for all ranks.
type networkNegotiation struct {
	request     netif.Request
	rejectLevel probe.Level // lowest level at which a network is rejected
	components  int         // of the job
	say         func(line string)
	record      func(rundir.Network) error // records the agreed network

	mu      sync.Mutex
	nodes   []int             // node of each rank
	hosts   []netif.Inventory // inventory of each node
	choices []netif.Choice    // choice of each node
}

// A networkDecision tells the ranks of a node which network to use.
type networkDecision struct {
	Choice netif.Choice `json:"choice"`
	Job    nccl.Job     `json:"job"` // what the RDMA adapters of all nodes have in common
}

func newNegotiation(job *jobs.Job, site *sites.Profile, record func(rundir.Network) error, say func(string)) *networkNegotiation {
	n := &job.Network
	a := &networkNegotiation{say: say, record: record, components: len(job.Components), rejectLevel: probe.Broken,
		request: netif.Request{Interface: string(n.Interface), Family: netif.Family(n.Family),
			Exclude: jobs.Strings(slices.Concat(n.Exclude, site.Network.Exclude)), Prefer: jobs.Strings(site.Network.Prefer)}}
	if job.Command != nil {
		a.rejectLevel = probe.Unbound // NCCL and Gloo do not bind outgoing connections to an interface
	}
	return a
}

// rounds returns the decisions of a rendezvous server for the ranks of this program.
func (a *networkNegotiation) rounds() map[string]rendezvous.Decide {
	all := map[string]rendezvous.Decide{
		roundHosts:   decideHosts,
		roundNetwork: a.decideNetwork,
		roundPeers:   rendezvous.FromPeers,
		roundMaster:  rendezvous.FromRankZero,
		roundDevices: decideDevices,
	}
	if a.components > 0 {
		all[roundComponents], all[roundProgramsEnded] = decideComponents, rendezvous.FromRankZero
	}
	for i := range a.components {
		all[componentReadyRound(i)] = rendezvous.FromRankZero
	}
	for try := 1; try <= maxNetworkTries; try++ {
		all[endpointsRound(try)] = a.decideEndpoints
		all[connectivityRound(try)] = func(payloads [][]byte) ([][]byte, error) { return a.decideConnectivity(payloads, try) }
	}
	return all
}

// nameTimeout limits the lookup of a node's name on the fast network.
const nameTimeout = 2 * time.Second

// findFastInterface returns the interface of this node whose address belongs to the node's name
// with the site's suffix. It returns an empty string if the site has no suffix, or if the name
// does not resolve to an address of this node.
func findFastInterface(ctx context.Context, host string, site *sites.Profile, inventory netif.Inventory) string {
	if site.Network.NameSuffix == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, nameTimeout)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host+string(site.Network.NameSuffix))
	if err != nil {
		return "" // ignore a name that does not resolve
	}
	for _, link := range inventory.Links {
		for _, prefix := range link.Addrs {
			if slices.ContainsFunc(found, func(a netip.Addr) bool { return a.Unmap() == prefix.Addr() }) {
				return link.Name
			}
		}
	}
	return ""
}

// decideNetwork determines a common network for all nodes and sends every rank its node's
// choice.
func (a *networkNegotiation) decideNetwork(payloads [][]byte) ([][]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	byNode := map[int]netif.Inventory{}
	a.nodes = make([]int, len(payloads))
	for rank, p := range payloads {
		var r nodeReport
		if err := json.Unmarshal(p, &r); err != nil {
			return nil, fmt.Errorf("decode network report of rank %d: %w", rank, err)
		}
		a.nodes[rank] = r.Node
		if r.Inventory == nil {
			continue
		}
		if _, twice := byNode[r.Node]; twice {
			return nil, fmt.Errorf("two ranks report the network of node %d (%s)", r.Node, r.Host)
		}
		r.Inventory.Host = r.Host
		if r.Fast != "" && !slices.Contains(a.request.Prefer, r.Fast) {
			a.request.Prefer = append(slices.Clip(a.request.Prefer), r.Fast)
		}
		byNode[r.Node] = *r.Inventory
	}
	a.hosts = nil
	for node := range len(byNode) {
		host, ok := byNode[node]
		if !ok {
			return nil, fmt.Errorf("no rank reports the network of node %d", node)
		}
		a.hosts = append(a.hosts, host)
	}
	if len(a.hosts) == 0 {
		return nil, errors.New("no rank reports a network")
	}
	for rank, node := range a.nodes {
		if node < 0 || node >= len(a.hosts) {
			return nil, fmt.Errorf("rank %d is on node %d of %d", rank, node, len(a.hosts))
		}
	}
	next, err := a.chooseNetwork()
	if err != nil {
		return nil, err
	}
	return a.replies(func(node int) any { return next[node] })
}

// chooseNetwork chooses a network that all nodes share, and what NCCL may use of it. It records the
// network for later messages and in the run directory.
func (a *networkNegotiation) chooseNetwork() ([]networkDecision, error) {
	choices, err := netif.Agree(a.hosts, a.request)
	if err != nil {
		return nil, err
	}
	job, err := nccl.Agree(a.hosts, choices, a.request.Exclude...)
	if err != nil {
		return nil, err
	}
	for _, w := range job.Warnings {
		a.say("warning: " + w)
	}
	a.choices = choices
	if err := a.record(a.network()); err != nil {
		a.say(fmt.Sprintf("warning: %v", err))
	}
	next := make([]networkDecision, len(choices))
	for node, c := range choices {
		next[node] = networkDecision{c, job}
	}
	return next, nil
}

// network returns the agreed network for the run directory, which users read.
func (a *networkNegotiation) network() rundir.Network {
	n := rundir.Network{Time: time.Now().UTC(), Choice: a.choices[0]}
	for node, c := range a.choices {
		n.Hosts = append(n.Hosts, rundir.NetworkHost{Host: a.hosts[node].Host, Interface: c.Interface, Address: c.Addr.String()})
	}
	return n
}

// replies returns one reply per rank, with the content for its node.
func (a *networkNegotiation) replies(content func(node int) any) ([][]byte, error) {
	encoded := make([][]byte, len(a.hosts))
	for node := range encoded {
		var err error
		if encoded[node], err = json.Marshal(content(node)); err != nil {
			return nil, err
		}
	}
	replies := make([][]byte, len(a.nodes))
	for rank, node := range a.nodes {
		replies[rank] = encoded[node]
	}
	return replies, nil
}
