package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/jobs/usage"
)

// usageSection shows the CPU time, the memory, and the GPU use of a user's program.
type usageSection struct {
	Say   string
	Ranks []usageRow
	Cut   int // number of ranks that are omitted
	GPUs  []gpuRow
	// CutGPUs is the number of GPUs that are omitted.
	CutGPUs int
	Long    bool // the tables are folded
}

// A meter is a bar in a table. Shares are percentages of its width.
type meter struct {
	Text  string
	Share int
}

type usageRow struct {
	Rank        int
	Host        string
	CPU, Memory meter
	CPUPeak     string
	MemoryMean  string
	Processes   int
}

type gpuRow struct {
	Host, Name string
	Index      int
	Busy       meter
	BusyPeak   string
	Memory     meter
}

// maxOpenRows is the maximum number of rows of a table that is not folded.
const maxOpenRows = 16

// idleGPU is the share of time below which the report names a GPU.
const idleGPU = 0.3

// addUsage adds the section if there are measurements.
func (p *page) addUsage() {
	var u usageSection
	var ranks []usageRow
	nodes := p.Run.Usage
	most := usage.Rank{}
	var cpu float64
	all := usage.Ranks(nodes)
	for _, r := range all {
		cpu += r.CPUMean / float64(len(all))
		if r.MemoryPeak > most.MemoryPeak {
			most = r
		}
	}
	highest := 0.0
	for _, r := range all {
		highest = max(highest, r.CPUPeak)
	}
	for _, n := range nodes {
		for _, r := range n.Ranks {
			limit := highest
			if r.Cores > 0 {
				limit = float64(r.Cores)
			}
			row := usageRow{Rank: r.Rank, Host: n.Host, CPU: meter{usage.FormatCores(r.CPUMean), share(r.CPUMean, limit)},
				CPUPeak: usage.FormatCores(r.CPUPeak), Memory: meter{format.Bytes(r.MemoryPeak), share(float64(r.MemoryPeak), float64(most.MemoryPeak))},
				MemoryMean: format.Bytes(r.MemoryMean), Processes: r.Processes}
			if r.Cores > 0 {
				row.CPU.Text += fmt.Sprintf(" of %d", r.Cores)
			}
			ranks = append(ranks, row)
		}
		for _, g := range n.GPUs {
			row := gpuRow{Host: n.Host, Index: g.Index, Name: g.Name}
			if g.BusyMean != nil && g.BusyPeak != nil {
				row.Busy, row.BusyPeak = meter{format.Percent(*g.BusyMean), share(*g.BusyMean, 1)}, format.Percent(*g.BusyPeak)
			}
			if g.MemoryPeak > 0 {
				row.Memory = meter{format.Bytes(g.MemoryPeak), share(float64(g.MemoryPeak), float64(g.MemoryTotal))}
				if g.MemoryTotal > 0 {
					row.Memory.Text += " of " + format.Bytes(g.MemoryTotal)
				}
			}
			u.GPUs = append(u.GPUs, row)
		}
	}
	if len(ranks) == 0 {
		return
	}
	slices.SortStableFunc(ranks, func(a, b usageRow) int { return cmp.Compare(a.Rank, b.Rank) })
	u.Long = len(ranks) > maxOpenRows || len(u.GPUs) > maxOpenRows
	u.Ranks, u.Cut = truncate(ranks)
	u.GPUs, u.CutGPUs = truncate(u.GPUs)
	n := nodes[0]
	u.Say = fmt.Sprintf("Attempt %d, %s. On average, a rank used %s cores. Rank %d used most memory: %s.",
		n.Attempt, format.Count(n.Samples, "sample"), usage.FormatCores(cpu), most.Rank, format.Bytes(most.MemoryPeak))
	if idle := idleGPUs(nodes); len(idle) > 0 {
		u.Say += " " + sentence("mostly idle: "+format.List(idle, 8))
	} else if mean, ok := usage.BusyMean(nodes); ok {
		u.Say += fmt.Sprintf(" The GPUs were busy for %s of the time.", format.Percent(mean))
	}
	p.Usage = &u
}

// idleGPUs names the GPUs that were busy for less than idleGPU of the time.
func idleGPUs(nodes []usage.Node) (names []string) {
	for _, n := range nodes {
		for _, g := range n.GPUs {
			if g.BusyMean != nil && *g.BusyMean < idleGPU {
				names = append(names, strings.TrimSpace(fmt.Sprintf("GPU %d%s (%s)", g.Index, onHost(n.Host), format.Percent(*g.BusyMean))))
			}
		}
	}
	return names
}

// share returns a value as a percentage of a limit, from 0 to 100.
func share(value, limit float64) int {
	if limit <= 0 || value <= 0 {
		return 0
	}
	return int(min(100, 100*value/limit+0.5))
}
