package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/netif"
	"github.com/ddpbatch/ddpbatch/templates/sites"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

// The rounds that ranks exchange, in this order.
const (
	roundNetwork = "network" // inventories to the choice for each node
	roundRing    = "ring"    // the built-in trainer: where each rank listens, to its predecessor
	roundMaster  = "master"  // a user's program: rank 0's address and port
	roundDevices = "devices" // a user's program on GPUs: which of them each rank sees
)

// nodeReport is what a rank contributes to the choice of the network; one rank
// of each node brings the inventory.
type nodeReport struct {
	Node      int              `json:"node"`
	Host      string           `json:"host"`
	Step      string           `json:"step,omitempty"`
	Inventory *netif.Inventory `json:"inventory,omitempty"`
	Fast      string           `json:"fast,omitempty"` // the interface that the site's name for this node leads to
}

// rounds are the decisions of a rendezvous server for the ranks of this program.
func rounds(n *jobs.Network, site *sites.Profile) map[string]rendezvous.Decide {
	request := netif.Request{Interface: string(n.Interface), Family: netif.Family(n.Family)}
	for _, x := range slices.Concat(n.Exclude, site.Network.Exclude) {
		request.Exclude = append(request.Exclude, string(x))
	}
	for _, x := range site.Network.Prefer {
		request.Prefer = append(request.Prefer, string(x))
	}
	return map[string]rendezvous.Decide{
		roundNetwork: func(payloads [][]byte) ([][]byte, error) { return decideNetwork(payloads, request) },
		roundRing:    rendezvous.FromNext,
		roundMaster:  rendezvous.FromRankZero,
		roundDevices: decideDevices,
	}
}

// nameTimeout bounds the question for a node's name on the fast network.
const nameTimeout = 2 * time.Second

// fastInterface is the interface of this node that its name with the site's suffix
// leads to; empty where the site has none, or the name leads elsewhere.
func fastInterface(ctx context.Context, host string, site *sites.Profile, inventory netif.Inventory) string {
	if site.Network.NameSuffix == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, nameTimeout)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host+string(site.Network.NameSuffix))
	if err != nil {
		return "" // a hint that does not hold is none
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

// decideNetwork has the nodes agree and gives every rank its node's choice.
func decideNetwork(payloads [][]byte, request netif.Request) ([][]byte, error) {
	reports := make([]nodeReport, len(payloads))
	byNode := map[int]netif.Inventory{}
	for rank, p := range payloads {
		if err := json.Unmarshal(p, &reports[rank]); err != nil {
			return nil, fmt.Errorf("rank %d's network report: %w", rank, err)
		}
		r := &reports[rank]
		if r.Inventory == nil {
			continue
		}
		if _, twice := byNode[r.Node]; twice {
			return nil, fmt.Errorf("two ranks report the network of node %d (%s)", r.Node, r.Host)
		}
		r.Inventory.Host = r.Host
		if r.Fast != "" && !slices.Contains(request.Prefer, r.Fast) {
			request.Prefer = append(slices.Clip(request.Prefer), r.Fast)
		}
		byNode[r.Node] = *r.Inventory
	}
	var inventories []netif.Inventory
	for node := range len(byNode) {
		inv, ok := byNode[node]
		if !ok {
			return nil, fmt.Errorf("no rank reports the network of node %d", node)
		}
		inventories = append(inventories, inv)
	}
	if len(inventories) == 0 {
		return nil, errors.New("no rank reports a network")
	}
	choices, err := netif.Agree(inventories, request)
	if err != nil {
		return nil, fmt.Errorf("agree on a network: %w", err)
	}
	encoded := make([][]byte, len(choices))
	for i, c := range choices {
		if encoded[i], err = json.Marshal(c); err != nil {
			return nil, err
		}
	}
	replies := make([][]byte, len(payloads))
	for rank, r := range reports {
		if r.Node < 0 || r.Node >= len(encoded) {
			return nil, fmt.Errorf("rank %d is on node %d of %d", rank, r.Node, len(encoded))
		}
		replies[rank] = slices.Clone(encoded[r.Node])
	}
	return replies, nil
}
