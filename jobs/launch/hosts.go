package launch

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/ddpbatch/ddpbatch/jobs/launchers"
)

// A hostReport holds what a rank knows about its host if its launcher does not pass the node
// rank.
type hostReport struct {
	Host           string `json:"host"`
	LocalRank      int    `json:"local_rank"` // launchers.Unknown if not known
	LocalWorldSize int    `json:"local_world_size"`
}

// hostPlace completes the rank information that the launcher did not pass.
type hostPlace struct {
	LocalRank      int `json:"local_rank"`
	LocalWorldSize int `json:"local_world_size"`
	NodeRank       int `json:"node_rank"`
	Nodes          int `json:"nodes"`
}

// findHost determines which ranks share a host, if the launcher has not passed the node rank.
// All ranks must call it.
func (r *Rank) findHost(ctx context.Context) error {
	p := &r.Place
	if p.NodeRank != launchers.Unknown {
		return nil
	}
	payload, err := json.Marshal(hostReport{p.Host, p.LocalRank, p.LocalWorldSize})
	if err != nil {
		return err
	}
	reply, err := r.Session.Exchange(ctx, roundHosts, payload)
	if err != nil {
		return err
	}
	var at hostPlace
	if err := json.Unmarshal(reply, &at); err != nil {
		return fmt.Errorf("the place of this rank on its host: %w", err)
	}
	p.LocalRank, p.LocalWorldSize, p.NodeRank, p.Nodes = at.LocalRank, at.LocalWorldSize, at.NodeRank, at.Nodes
	return nil
}

// decideHosts numbers the hosts in the order of their lowest ranks. Within a host it uses the
// local ranks of the launcher if they are known, or else the order of the ranks.
func decideHosts(payloads [][]byte) ([][]byte, error) {
	var hosts []string
	ranksOf := map[string][]int{}
	reports := make([]hostReport, len(payloads))
	for rank, p := range payloads {
		if err := json.Unmarshal(p, &reports[rank]); err != nil {
			return nil, fmt.Errorf("rank %d's report on its host: %w", rank, err)
		}
		host := reports[rank].Host
		if ranksOf[host] == nil {
			hosts = append(hosts, host)
		}
		ranksOf[host] = append(ranksOf[host], rank)
	}
	replies := make([][]byte, len(payloads))
	for node, host := range hosts {
		ranks := ranksOf[host]
		taken := map[int]int{}
		for i, rank := range ranks {
			at := hostPlace{LocalRank: i, LocalWorldSize: len(ranks), NodeRank: node, Nodes: len(hosts)}
			if told := reports[rank]; told.LocalRank != launchers.Unknown {
				if told.LocalWorldSize != len(ranks) {
					return nil, fmt.Errorf("rank %d was told of %d ranks on its host, but %d ranks are on %s: do two machines have this name?",
						rank, told.LocalWorldSize, len(ranks), host)
				}
				at.LocalRank = told.LocalRank
			}
			if other, twice := taken[at.LocalRank]; twice {
				return nil, fmt.Errorf("ranks %d and %d are both local rank %d on %s", other, rank, at.LocalRank, host)
			}
			taken[at.LocalRank] = rank
			text, err := json.Marshal(at)
			if err != nil {
				return nil, err
			}
			replies[rank] = text
		}
	}
	return replies, nil
}
