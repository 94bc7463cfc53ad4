package launch

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/netif"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

// The rounds that ranks exchange, in this order.
const (
	roundNetwork = "network" // inventories to the choice for each node
	roundRing    = "ring"    // the built-in trainer: where each rank listens, to its predecessor
	roundMaster  = "master"  // a user's program: rank 0's address and port
)

// nodeReport is what a rank contributes to the choice of the network; one rank
// of each node brings the inventory.
type nodeReport struct {
	Node      int              `json:"node"`
	Host      string           `json:"host"`
	Step      string           `json:"step,omitempty"`
	Inventory *netif.Inventory `json:"inventory,omitempty"`
}

// rounds are the decisions of a rendezvous server for the ranks of this program.
func rounds(n *jobs.Network) map[string]rendezvous.Decide {
	request := netif.Request{Interface: string(n.Interface), Family: netif.Family(n.Family)}
	for _, x := range n.Exclude {
		request.Exclude = append(request.Exclude, string(x))
	}
	return map[string]rendezvous.Decide{
		roundNetwork: func(payloads [][]byte) ([][]byte, error) { return decideNetwork(payloads, request) },
		roundRing:    rendezvous.FromNext,
		roundMaster:  rendezvous.FromRankZero,
	}
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
