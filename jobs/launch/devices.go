package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/jobs"
)

// deviceVariables say which GPUs a process may use: CUDA's, and ROCm's.
var deviceVariables = []string{"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}

// deviceReport is what a rank sees of its node's GPUs.
type deviceReport struct {
	Node      int      `json:"node"`
	LocalRank int      `json:"local_rank"`
	Visible   []string `json:"visible"` // by deviceVariables; empty where not set
}

// decideDevices has the ranks of a node, each of which sees one GPU of its own,
// see those of all of them, in the order of their local ranks. Programs take the
// GPU with the number of their local rank, and CUDA's peer access needs them all
// visible; Slurm's --gpus-per-task shows each task its own as the only one.
//
// A reply is the variables' values, or nothing where they stay as they are: the
// GPUs of two ranks have the same number where Slurm's cgroups hide the others, and
// then no variable brings them back; names of GPUs (Slurm 26.05 gives those) do not
// tell whether others are hidden.
func decideDevices(payloads [][]byte) ([][]byte, error) {
	reports := make([]deviceReport, len(payloads))
	byNode := map[int][]int{}
	for rank, p := range payloads {
		r := &reports[rank]
		if err := json.Unmarshal(p, r); err != nil || len(r.Visible) != len(deviceVariables) {
			return nil, fmt.Errorf("rank %d's report on its GPUs: %q", rank, p)
		}
		byNode[r.Node] = append(byNode[r.Node], rank)
	}
	replies := make([][]byte, len(payloads))
	for _, ranks := range byNode {
		slices.SortFunc(ranks, func(a, b int) int { return reports[a].LocalRank - reports[b].LocalRank })
		values := make([]string, len(deviceVariables))
		for v := range deviceVariables {
			var seen []string
			for _, rank := range ranks {
				seen = append(seen, reports[rank].Visible[v])
			}
			if len(seen) > 1 && eachItsOwn(seen) {
				values[v] = strings.Join(seen, ",")
			}
		}
		text, err := json.Marshal(values)
		if err != nil {
			return nil, err
		}
		for _, rank := range ranks {
			replies[rank] = text
		}
	}
	return replies, nil
}

// eachItsOwn says whether every rank sees one GPU, by its number, and each another
// one.
func eachItsOwn(seen []string) bool {
	for i, s := range seen {
		if s == "" || strings.Trim(s, "0123456789") != "" || slices.Contains(seen[:i], s) {
			return false
		}
	}
	return true
}

// devices are the variables that let the program find its GPU by its local rank,
// and a warning where it cannot.
func (r *Rank) devices(ctx context.Context, lookup func(string) (string, bool)) (set map[string]string, warning string, err error) {
	if r.job.Slurm.GPUsPerNode == 0 || r.job.Command.Launcher == jobs.LauncherTorchrun {
		return nil, "", nil
	}
	report := deviceReport{Node: r.Place.NodeRank, LocalRank: r.Place.LocalRank}
	for _, name := range deviceVariables {
		value, _ := lookup(name)
		report.Visible = append(report.Visible, value)
	}
	payload, err := json.Marshal(report)
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := r.soon(ctx)
	defer cancel()
	reply, err := r.Session.Exchange(ctx, roundDevices, payload)
	if err != nil {
		return nil, "", err
	}
	var values []string
	if err := json.Unmarshal(reply, &values); err != nil {
		return nil, "", fmt.Errorf("the GPUs of this node: %w", err)
	}
	set = map[string]string{}
	for v, name := range deviceVariables {
		switch seen := report.Visible[v]; {
		case v < len(values) && values[v] != "":
			set[name] = values[v]
		// Slurm sets both variables, whichever make the GPUs are: one warning.
		case warning == "" && seen != "" && strings.Count(seen, ",") < r.Place.LocalRank:
			warning = fmt.Sprintf("rank %d sees the GPUs %s=%s only, so there is none with the number of its local rank %d; "+
				"the program must take device 0, or the job gpu_bind = \"none\"", r.Place.Rank, name, seen, r.Place.LocalRank)
		}
	}
	return set, warning, nil
}
