package launch

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/ddpbatch/ddpbatch/jobs/launchers"
)

// hostReport is what a rank knows of its place, where its launcher does not say all.
type hostReport struct {
	Host           string `json:"host"`
	LocalRank      int    `json:"local_rank"` // launchers.Unknown if it is not known
	LocalWorldSize int    `json:"local_world_size"`
}

// hostPlace is the rest of a rank's place.
type hostPlace struct {
	LocalRank      int `json:"local_rank"`
	LocalWorldSize int `json:"local_world_size"`
	NodeRank       int `json:"node_rank"`
	Nodes          int `json:"nodes"`
}

// findHost has the ranks find out which of them share a host, if their launcher has not
// told them.
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

// decideHosts numbers hosts in the order of their first ranks, and the ranks of a host as
// their launcher did, or in their own order.
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
