// Package usage measures how much CPU time, memory, and GPU time the ranks of a user's program use.
//
//   - One sampler runs on each node, in the process of the first rank of the node. It reads
//     /proc 1, 3, 7, and 15 s after the start, and then every 10 s, or less often if that would
//     cost more than 0.5% of a core.
//   - Every 30 s it calls nvidia-smi, or else rocm-smi, if the PATH has it. It stops if three calls in
//     a row fail.
//   - The result is one small file for each node. The sampler replaces it at most once a minute,
//     after the first minute. Its size does not depend on the duration of the run.
//   - Errors and delays of the sampler do not affect the program. A file system or a driver that
//     does not respond costs the measurements, and at most 2 s at the end.
//
// A process belongs to a rank if its environment has the ID of the run and a RANK, or if its parent
// belongs to the rank. Memory is the private memory of all processes of a rank, plus the shared
// memory of the process with most of it. Memory that forked workers share may count several times.
// CPU time of processes that start and end between two samples counts if their parent waits for
// them.
//
// The package measures neither the power of GPUs nor the use of networks and disks.
package usage

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/format"
)

// A Node holds the measurements of one node in one attempt.
type Node struct {
	Node    int       `json:"node"` // index, from 0
	Host    string    `json:"host"`
	Attempt int       `json:"attempt"` // across all launchers, from 1
	Time    time.Time `json:"time"`    // of the last sample
	Samples int       `json:"samples"`
	Ranks   []Rank    `json:"ranks"`
	GPUs    []GPU     `json:"gpus,omitempty"`
}

// A Rank holds the measurements of one rank.
type Rank struct {
	Rank       int     `json:"rank"`
	Cores      int     `json:"cores,omitempty"` // that the rank may use
	CPUMean    float64 `json:"cpu_mean"`        // in cores
	CPUPeak    float64 `json:"cpu_peak"`        // highest mean between two samples, in cores
	MemoryMean int64   `json:"memory_mean"`     // in bytes
	MemoryPeak int64   `json:"memory_peak"`     // in bytes
	Processes  int     `json:"processes"`       // highest number
}

// A GPU holds the measurements of one GPU. Fields are nil or 0 if the tool does not report them.
type GPU struct {
	Index       int      `json:"index"`
	Name        string   `json:"name,omitempty"`
	Samples     int      `json:"samples"`
	BusyMean    *float64 `json:"busy_mean,omitempty"` // share of the time in which a kernel ran, from 0 to 1
	BusyPeak    *float64 `json:"busy_peak,omitempty"`
	MemoryMean  int64    `json:"memory_mean,omitempty"` // in bytes
	MemoryPeak  int64    `json:"memory_peak,omitempty"`
	MemoryTotal int64    `json:"memory_total,omitempty"`
}

const (
	// MaxBytes is the maximum size of the file of a node.
	MaxBytes = 1 << 20
	// maxRanks is the maximum number of ranks of a node. maxGPUs is the maximum number of GPUs.
	maxRanks, maxGPUs = 2048, 64
	// maxAllRanks and maxAllGPUs are the maximum numbers for all nodes.
	maxAllRanks, maxAllGPUs = 100_000, 100_000
	// maxName is the maximum length of the name of a GPU, in bytes. maxHost is the maximum for a host.
	maxName, maxHost = 100, 255
	// maxCores and maxMemory are above what one node can have.
	maxCores, maxMemory = 1 << 16, 1 << 50
)

// Parse returns the measurements in files of nodes, sorted by node. It skips files that it cannot
// parse, and files with values that no node can have. It stops at 100,000 ranks or GPUs. Another user
// may own the files.
func Parse(files [][]byte) []Node {
	var nodes []Node
	ranks, gpus := 0, 0
	for _, text := range files {
		var n Node
		if json.Unmarshal(text, &n) != nil || !n.valid() {
			continue
		}
		ranks, gpus = ranks+len(n.Ranks), gpus+len(n.GPUs)
		if ranks > maxAllRanks || gpus > maxAllGPUs {
			break
		}
		n.Ranks, n.GPUs = slices.Clone(n.Ranks), slices.Clone(n.GPUs) // a repeated key leaves the memory of the longest list
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b Node) int { return cmp.Compare(a.Node, b.Node) })
	return nodes
}

// valid reports whether a node has ranks, and whether the values of its ranks and GPUs are possible.
func (n Node) valid() bool {
	if len(n.Ranks) == 0 || len(n.Ranks) > maxRanks || len(n.GPUs) > maxGPUs || len(n.Host) > maxHost {
		return false
	}
	invalidRank := func(r Rank) bool {
		return r.Rank < 0 || !within(maxCores, r.Cores) || !within(maxCores, r.CPUMean, r.CPUPeak) ||
			!within(maxMemory, r.MemoryMean, r.MemoryPeak)
	}
	invalidGPU := func(g GPU) bool {
		return len(g.Name) > maxName || !within(maxMemory, g.MemoryMean, g.MemoryPeak, g.MemoryTotal) ||
			g.BusyMean != nil && !within(1, *g.BusyMean) || g.BusyPeak != nil && !within(1, *g.BusyPeak)
	}
	return !slices.ContainsFunc(n.Ranks, invalidRank) && !slices.ContainsFunc(n.GPUs, invalidGPU)
}

// within reports whether all values are from 0 to limit.
func within[T int | int64 | float64](limit T, values ...T) bool {
	return !slices.ContainsFunc(values, func(v T) bool { return v < 0 || v > limit })
}

// Ranks returns the ranks of all nodes, sorted by rank.
func Ranks(nodes []Node) []Rank {
	var ranks []Rank
	for _, n := range nodes {
		ranks = append(ranks, n.Ranks...)
	}
	slices.SortFunc(ranks, func(a, b Rank) int { return cmp.Compare(a.Rank, b.Rank) })
	return ranks
}

// Summary describes the measurements in one line. It returns an empty string if nodes is empty.
func Summary(nodes []Node) string {
	var words []string
	ranks := Ranks(nodes)
	if len(ranks) > 0 {
		var cpu float64
		var memory int64
		cores := ranks[0].Cores
		for _, r := range ranks {
			cpu, memory = cpu+r.CPUMean, max(memory, r.MemoryPeak)
			if r.Cores != cores {
				cores = 0
			}
		}
		text := "CPU " + FormatCores(cpu/float64(len(ranks)))
		if cores > 0 {
			text += fmt.Sprintf(" of %d", cores)
		}
		words = append(words, text+" cores per rank", "memory up to "+format.Bytes(memory)+" per rank")
	}
	if mean, ok := BusyMean(nodes); ok {
		words = append(words, "GPUs "+format.Percent(mean)+" busy")
	}
	return strings.Join(words, ", ")
}

// FormatCores formats a number of cores.
func FormatCores(cores float64) string {
	if cores >= 10 {
		return fmt.Sprintf("%.0f", cores)
	}
	return fmt.Sprintf("%.2g", cores)
}

// BusyMean returns the mean over all GPUs of the share of the time in which they were busy. It
// returns false if it is not known of any GPU.
func BusyMean(nodes []Node) (mean float64, ok bool) {
	n := 0
	for _, node := range nodes {
		for _, g := range node.GPUs {
			if g.BusyMean != nil {
				mean, n = mean+*g.BusyMean, n+1
			}
		}
	}
	return mean / float64(max(n, 1)), n > 0
}
