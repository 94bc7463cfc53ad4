package jobs

import (
	"fmt"
	"slices"
)

// A Group is a set of equal nodes of a job whose nodes differ. For Slurm, it is a component of a
// heterogeneous job. Empty values default to the values of [Slurm].
type Group struct {
	Nodes        int `toml:"nodes" auto:"1" range:"1.." help:"Number of nodes."`
	TasksPerNode int `toml:"tasks_per_node" auto:"gpus_per_node, or 1 without GPUs" range:"1.." help:"Ranks per node."`
	GPUsPerNode  int `toml:"gpus_per_node" auto:"none" range:"1.." typed:"GPUType" example:"4" help:"GPUs per node. A type may precede the number, such as a100:4."`
	// GPUType is the type in gpus_per_node, such as "a100"; empty for any type.
	GPUType     string
	CPUsPerTask Cores  `toml:"cpus_per_task" auto:"slurm.cpus_per_task" help:"CPU cores per rank, or all."`
	Memory      Memory `toml:"mem" auto:"slurm.mem" help:"Memory per node."`
	Partition   Word   `toml:"partition" auto:"slurm.partition" help:"Partition."`
	QOS         Word   `toml:"qos" auto:"slurm.qos" help:"Quality of service."`
	Constraint  Text   `toml:"constraint" auto:"slurm.constraint" help:"Required node features."`
	Gres        Word   `toml:"gres" help:"Generic resources per node other than GPUs."`
	NodeList    Word   `toml:"nodelist" help:"Nodes that the group must get."`
}

const (
	// maxGroups is Slurm's limit of components (MAX_HET_JOB_COMPS).
	maxGroups = 128
	// maxGroupNodes is the maximum number of nodes of all groups. Slurm has at most 65,536 nodes. Some
	// lists have an element for each node.
	maxGroupNodes = 65_536
)

// ofGroup returns the resources of a group, for a job with groups.
func (s *Slurm) ofGroup(i int) Slurm {
	g, all := s.Groups[i], *s
	all.Groups, all.RanksPerNode = nil, nil
	all.Nodes, all.TasksPerNode, all.GPUsPerNode, all.GPUType = g.Nodes, g.TasksPerNode, g.GPUsPerNode, g.GPUType
	all.Gres, all.NodeList = g.Gres, g.NodeList
	if g.CPUsPerTask != 0 {
		all.CPUsPerTask = g.CPUsPerTask
	}
	if g.Memory != "" {
		all.Memory, all.MemoryPerCPU = g.Memory, ""
	}
	if g.Partition != "" {
		all.Partition = g.Partition
	}
	if g.QOS != "" {
		all.QOS = g.QOS
	}
	if g.Constraint != "" {
		all.Constraint = g.Constraint
	}
	if i > 0 { // one mail and one set of licenses for the job
		all.Mail, all.Licenses = nil, ""
	}
	return all
}

// countNodes returns the number of nodes before the defaults are set.
func (s *Slurm) countNodes() int { return max(1, s.Nodes, s.countGroupNodes()) }

// countGroupNodes returns the number of nodes of all groups before the defaults are set.
func (s *Slurm) countGroupNodes() (nodes int) {
	for _, g := range s.Groups {
		nodes += max(1, g.Nodes)
	}
	return nodes
}

// SplitGroups returns a job with the resources of one group for each group, or the job itself if it
// has no groups.
func (j *Job) SplitGroups() []*Job {
	if len(j.Slurm.Groups) == 0 {
		return []*Job{j}
	}
	var all []*Job
	for i := range j.Slurm.Groups {
		part := *j
		part.Slurm = j.Slurm.ofGroup(i)
		all = append(all, &part)
	}
	return all
}

// SharesCores reports whether the ranks of some nodes share all cores of the node.
func (j *Job) SharesCores() bool {
	return slices.ContainsFunc(j.SplitGroups(), func(part *Job) bool { return part.Slurm.CPUsPerTask == AllCores })
}

// setGroupDefaults sets the defaults of all groups, and the keys of [Slurm] that describe all nodes.
// GPUsPerNode is the smallest number of a group.
func (s *Slurm) setGroupDefaults() {
	if len(s.Groups) == 0 {
		return
	}
	s.Nodes, s.GPUsPerNode = 0, s.Groups[0].GPUsPerNode
	var ranks []int
	for i := range s.Groups {
		g := &s.Groups[i]
		setDefault(&g.Nodes, 1)
		setDefault(&g.TasksPerNode, max(1, g.GPUsPerNode))
		s.Nodes += g.Nodes
		s.GPUsPerNode = min(s.GPUsPerNode, g.GPUsPerNode)
		ranks = append(ranks, slices.Repeat([]int{g.TasksPerNode}, g.Nodes)...)
	}
	if s.TasksPerNode = slices.Max(ranks); slices.Min(ranks) < s.TasksPerNode {
		s.RanksPerNode = ranks
	}
}

func (d *decoder) checkGroups(j *Job) {
	const table = "slurm.group"
	if !d.isValid(table) {
		return
	}
	groups := j.Slurm.Groups
	switch {
	case len(groups) < 2:
		d.report(table, "set the keys in [slurm]", "has %d group, but groups describe nodes that differ", len(groups))
	case len(groups) > maxGroups:
		d.report(table, "", "has %d groups, but a job of Slurm has at most %d", len(groups), maxGroups)
	case j.Slurm.countGroupNodes() > maxGroupNodes:
		d.report(table, "", "has %d nodes, but a cluster of Slurm has at most %d", j.Slurm.countGroupNodes(), maxGroupNodes)
	}
	for _, name := range []string{"nodes", "tasks_per_node", "ranks_per_node", "gpus_per_node", "gres", "nodelist"} {
		if d.given["slurm."+name] {
			fix := "set " + name + " in each [[slurm.group]]"
			if name == "ranks_per_node" {
				fix = "set tasks_per_node in each [[slurm.group]]"
			}
			d.report("slurm."+name, fix, "is not valid with [[slurm.group]]")
		}
	}
	for _, name := range []string{"slurm.share_gpus", "slurm.mem_per_gpu", "restart.spare_nodes", "restart.min_nodes"} {
		if d.given[name] {
			d.report(name, "remove the key", "is not valid with [[slurm.group]]")
		}
	}
	ranks := map[int]bool{}
	withGPUs := 0
	for i, g := range groups {
		key := func(name string) string { return fmt.Sprintf("%s[%d].%s", table, i, name) }
		tasks := max(1, g.GPUsPerNode)
		if g.TasksPerNode > 0 {
			tasks = g.TasksPerNode
		}
		ranks[tasks] = true
		if g.GPUsPerNode > 0 {
			withGPUs++
		}
		if d.isValid(key("tasks_per_node"), key("gpus_per_node")) && g.GPUsPerNode%tasks != 0 {
			d.report(key("tasks_per_node"), "", "%d GPUs do not divide evenly among %d ranks", g.GPUsPerNode, tasks)
		}
	}
	someGPUs := withGPUs > 0 && withGPUs < len(groups)
	switch {
	case j.Train != nil && someGPUs && !d.invalid["train.device"] && j.Train.Device != DeviceCPU:
		d.report(table, `request GPUs in every group or in none, or set train.device = "cpu"`, "has groups with and without GPUs, but all ranks of the built-in trainer compute on the same device")
	case d.isValid("slurm.gpu_bind") && someGPUs:
		d.report("slurm.gpu_bind", "remove the key", "is not valid if some groups have no GPUs")
	}
	if j.Command != nil && j.Command.Launcher == LauncherLightning && len(ranks) > 1 {
		d.report(table, "set the same tasks_per_node in all groups", "has different numbers of ranks per node, but Lightning requires equal ones")
	}
}
