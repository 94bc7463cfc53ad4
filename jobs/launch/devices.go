package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/netif"
)

// deviceVariables are the variables that limit the GPUs of a process, for CUDA and for ROCm.
var deviceVariables = []string{"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}

// A deviceReport lists the GPUs that a rank sees on its node.
type deviceReport struct {
	Node      int      `json:"node"`
	LocalRank int      `json:"local_rank"`
	Visible   []string `json:"visible"` // by index in deviceVariables; empty if not set
}

// decideDevices handles nodes on which each rank sees exactly one GPU, and no two ranks see
// the same one. It makes the GPUs of all these ranks visible to each of them, ordered by local
// rank. Programs use the GPU whose index is their local rank, and CUDA's peer access requires
// all GPUs to be visible. Slurm's --gpus-per-task shows each task only its own GPU.
//
// A reply holds the values of the variables, or empty values if the variables do not change.
// They do not change in two cases:
//
//   - Two ranks report the same index because Slurm's cgroups hide the other GPUs. No variable
//     makes hidden GPUs visible.
//   - The variables contain names of GPUs, as Slurm 26.05 sets them. Names do not show whether
//     other GPUs are hidden.
func decideDevices(payloads [][]byte) ([][]byte, error) {
	reports := make([]deviceReport, len(payloads))
	byNode := map[int][]int{}
	for rank, p := range payloads {
		r := &reports[rank]
		if err := json.Unmarshal(p, r); err != nil || len(r.Visible) != len(deviceVariables) {
			return nil, fmt.Errorf("decode GPU report of rank %d: %q", rank, p)
		}
		byNode[r.Node] = append(byNode[r.Node], rank)
	}
	replies := make([][]byte, len(payloads))
	for _, ranks := range byNode {
		slices.SortFunc(ranks, func(a, b int) int { return reports[a].LocalRank - reports[b].LocalRank })
		values := make([]string, len(deviceVariables))
		for v := range deviceVariables {
			var visible []string
			for _, rank := range ranks {
				visible = append(visible, reports[rank].Visible[v])
			}
			if len(visible) > 1 && oneGPUPerRank(visible) {
				values[v] = strings.Join(visible, ",")
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

// oneGPUPerRank reports whether every rank sees one GPU, given by its index, and no two ranks see
// the same one.
func oneGPUPerRank(visible []string) bool {
	for i, s := range visible {
		if s == "" || strings.Trim(s, "0123456789") != "" || slices.Contains(visible[:i], s) {
			return false
		}
	}
	return true
}

// hipVariable is a variable of CUDA that HIP also reads. Its indices count, from 0, only the GPUs that
// ROCR_VISIBLE_DEVICES makes visible.
const hipVariable = "CUDA_VISIBLE_DEVICES"

// renumberForHIP changes set for a node with AMD GPUs only. Slurm may set both deviceVariables to
// the same indices of the node. HIP would apply the second variable to the result of the first, and
// then select different GPUs, or none.
func renumberForHIP(set map[string]string, lookup func(string) (string, bool)) {
	final := func(name string) string {
		if value, ok := set[name]; ok {
			return value
		}
		value, _ := lookup(name)
		return value
	}
	rocr := final("ROCR_VISIBLE_DEVICES")
	if rocr == "" || final(hipVariable) != rocr {
		return
	}
	var indices []string
	for i := range strings.Count(rocr, ",") + 1 {
		indices = append(indices, strconv.Itoa(i))
	}
	set[hipVariable] = strings.Join(indices, ",")
}

// visibleDevices returns the variables with which the program finds its GPU by its local rank. It
// returns a warning if the program cannot find its GPU.
func (r *Rank) visibleDevices(ctx context.Context, lookup func(string) (string, bool)) (set map[string]string, warning string, err error) {
	if r.job.Slurm.GPUsPerNode == 0 || r.job.Command.Launcher == jobs.LauncherTorchrun || r.job.RunsOnce() {
		return nil, "", nil
	}
	report := deviceReport{Node: r.Info.NodeRank, LocalRank: r.Info.LocalRank}
	for _, name := range deviceVariables {
		value, _ := lookup(name)
		report.Visible = append(report.Visible, value)
	}
	ctx, cancel := r.withJoinTimeout(ctx)
	defer cancel()
	var values []string
	if err := r.exchange(ctx, roundDevices, report, &values); err != nil {
		return nil, "", err
	}
	set = map[string]string{}
	for v, name := range deviceVariables {
		switch visible := report.Visible[v]; {
		case v < len(values) && values[v] != "":
			set[name] = values[v]
		// Slurm sets both variables for GPUs of any vendor. Warn only once.
		case warning == "" && !r.job.Slurm.ShareGPUs && visible != "" && strings.Count(visible, ",") < r.Info.LocalRank:
			warning = fmt.Sprintf("rank %d sees only the GPUs %s=%s, and none has the index of its local rank %d; "+
				"use device 0 in the program, or set slurm.gpu_bind = \"none\"", r.Info.Rank, name, visible, r.Info.LocalRank)
		}
	}
	if _, ok := lookup("ROCR_VISIBLE_DEVICES"); ok {
		inventory, err := netif.Collect(ctx)
		if err == nil && inventory.HasOnlyAMD() { // the network plan reports errors
			renumberForHIP(set, lookup)
		}
	}
	return set, warning, nil
}
