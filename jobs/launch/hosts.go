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

// hostPosition completes the rank information that the launcher did not pass.
type hostPosition struct {
	LocalRank      int `json:"local_rank"`
	LocalWorldSize int `json:"local_world_size"`
	NodeRank       int `json:"node_rank"`
	Nodes          int `json:"nodes"`
}

// findHostRanks determines which ranks share a host, if the launcher has not passed the node rank.
// All ranks must call it.
func (r *Rank) findHostRanks(ctx context.Context) error {
	p := &r.Info
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
	var at hostPosition
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
		rankOf := map[int]int{}
		for i, rank := range ranks {
			at := hostPosition{LocalRank: i, LocalWorldSize: len(ranks), NodeRank: node, Nodes: len(hosts)}
			if report := reports[rank]; report.LocalRank != launchers.Unknown {
				if report.LocalWorldSize != len(ranks) {
					return nil, fmt.Errorf("rank %d was told of %d ranks on its host, but %d ranks are on %s: do two machines have this name?",
						rank, report.LocalWorldSize, len(ranks), host)
				}
				at.LocalRank = report.LocalRank
			}
			if other, twice := rankOf[at.LocalRank]; twice {
				return nil, fmt.Errorf("ranks %d and %d are both local rank %d on %s", other, rank, at.LocalRank, host)
			}
			rankOf[at.LocalRank] = rank
			text, err := json.Marshal(at)
			if err != nil {
				return nil, err
			}
			replies[rank] = text
		}
	}
	return replies, nil
}
