package launch

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/exitcode"
	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

// nodes holds the nodes of the allocation and the nodes of the next attempt. A node that is
// found to be bad stays excluded as long as this launcher lives. Spare nodes replace excluded
// nodes, in the order of the allocation.
type nodes struct {
	o        Options
	chosen   []string          // nodes of the next attempt; nil without Slurm
	excluded map[string]string // reason, by node
	suspects map[string]bool   // nodes at fault in the last attempt
	joined   map[string]bool   // nodes whose ranks have joined an attempt
	lost     bool              // an excluded node is down or unresponsive, and not only at fault
}

// newNodes chooses the nodes of the first attempt.
func newNodes(o Options) (*nodes, error) {
	n := &nodes{o: o, excluded: map[string]string{}, joined: map[string]bool{}}
	if o.Allocation == nil {
		return n, nil
	}
	all := o.Allocation.Nodes
	if err := checkComponents(o); err != nil {
		return nil, err
	}
	if want := o.Job.AllocatedNodes(); len(all) != want {
		spares := ""
		if spare := o.Job.Restart.SpareNodes; spare > 0 {
			spares = fmt.Sprintf(", including %d spare nodes", spare)
		}
		return nil, fmt.Errorf("the allocation has %d nodes (%s), but the job needs %d%s", len(all), slurm.FoldHosts(all), want, spares)
	}
	if len(o.Allocation.Components) > 0 && o.Job.Restart.SurvivesNodeLoss() {
		// The nodes of different components cannot replace each other.
		return nil, exitcode.Usagef("remove both keys, or request nodes of one kind",
			"restart.spare_nodes and restart.min_nodes are not valid in a heterogeneous job (%d components)", len(o.Allocation.Components))
	}
	if name, _ := lookupIn(o.Environ)("SLURMD_NODENAME"); o.Job.RunsOnce() && name != all[0] {
		return nil, exitcode.Usagef("submit the job, or start ddpbatch on "+all[0],
			"command.run = \"once\" runs the program on the first node, %s, but the launcher is not on this node", all[0])
	}
	n.chosen = all[:o.Job.Slurm.Nodes]
	return n, nil
}

// checkComponents compares the groups of the job with the components of the allocation.
func checkComponents(o Options) error {
	groups, components := o.Job.Slurm.Groups, o.Allocation.Components
	if len(groups) == 0 {
		return nil
	}
	const hint = "request the groups as components of a heterogeneous job, or submit the job with `ddpbatch submit`"
	if len(groups) != len(components) {
		return exitcode.Usagef(hint, "the job has %d groups of nodes, but the allocation has %s", len(groups), format.Count(max(1, len(components)), "component"))
	}
	for i, c := range components {
		if len(c.Nodes) != groups[i].Nodes {
			return exitcode.Usagef(hint, "slurm.group[%d] has %s, but component %d of the allocation has %d (%s)",
				i, format.Count(groups[i].Nodes, "node"), i, len(c.Nodes), slurm.FoldHosts(c.Nodes))
		}
	}
	return nil
}

// excludeBadNodes excludes the nodes that an attempt has shown to be bad, and chooses the nodes
// of the next attempt. It returns an error if too few nodes are left. Lost reports whether an
// excluded node is down or unresponsive, so that a requeue can replace it.
func (n *nodes) excludeBadNodes(ctx context.Context, r Result) (lost bool, err error) {
	if n.o.Allocation == nil || !n.o.Job.Restart.SurvivesNodeLoss() {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	states, err := n.o.Slurm.NodeStates(ctx, n.o.Allocation.Nodes)
	if err != nil {
		n.o.Say(fmt.Sprintf("warning: %v", err)) // continue: the ranks' own results still count
	}
	for _, node := range n.findBadNodes(r, states) {
		n.o.Say(fmt.Sprintf("excluding node %s: %s", node, n.excluded[node]))
	}
	return n.lost, n.choose()
}

// choose selects the first nodes of the allocation that are not excluded.
func (n *nodes) choose() error {
	var usable []string
	for _, node := range n.o.Allocation.Nodes {
		if n.excluded[node] == "" {
			usable = append(usable, node)
		}
	}
	want := int(n.o.Job.Slurm.Nodes)
	minNodes := want
	if fewer := int(n.o.Job.Restart.MinNodes); fewer > 0 {
		minNodes = fewer
	}
	if len(usable) < minNodes {
		return fmt.Errorf("only %d of %d nodes are usable, and the job needs %d", len(usable), len(n.o.Allocation.Nodes), minNodes)
	}
	usable = usable[:min(want, len(usable))]
	if !slices.Equal(usable, n.chosen) {
		n.o.Say(fmt.Sprintf("continuing with %d of %d nodes: %s", len(usable), want, slurm.FoldHosts(usable)))
	}
	n.chosen = usable
	return nil
}

// findBadNodes returns the nodes that are bad, according to Slurm and to their ranks in the failed
// attempt.
func (n *nodes) findBadNodes(r Result, states map[string]slurm.NodeState) (bad []string) {
	exclude := func(node, format string, args ...any) {
		n.excluded[node] = fmt.Sprintf(format, args...)
		bad = append(bad, node)
	}
	anyJoined := slices.ContainsFunc(r.Ranks, func(s rendezvous.RankStatus) bool { return s.State != rendezvous.Missing })
	notStarted := map[string]bool{}
	for _, node := range n.o.Allocation.Nodes {
		if n.excluded[node] != "" {
			n.lost = n.lost || states[node].Down() // Slurm may notice it later than the ranks
			continue
		}
		absent, unresponsive := n.ranksOn(node, r, rendezvous.Missing) && anyJoined, n.ranksOn(node, r, rendezvous.Joined)
		switch {
		case states[node].Down():
			n.lost = true
			exclude(node, "Slurm reports that it is %s", strings.ToLower(string(states[node])))
		case unresponsive: // even Slurm's kill of the step did not make its ranks leave the rendezvous
			n.lost = true
			exclude(node, "its ranks stopped responding")
		case absent && r.Failure.State == rendezvous.Missing && r.Failure.Phase == "join":
			n.lost = n.lost || n.joined[node] // the node has worked before, so it is not misconfigured
			exclude(node, "its ranks did not join")
		case absent:
			notStarted[node] = true
		case slices.Contains(n.chosen, node):
			n.joined[node] = true
		}
	}
	// A problem of one node can also cause failures on other nodes.
	suspects := notStarted
	switch {
	case len(bad) > 0:
		n.suspects = nil
		return bad
	case len(notStarted) == 0:
		suspects = map[string]bool{r.Failure.Host: true} // no node if the host is empty
	}
	for _, node := range n.o.Allocation.Nodes {
		switch {
		case suspects[node] && states[node].Draining():
			exclude(node, "its rank failed first, and Slurm reports that it is %s", states[node])
		case suspects[node] && n.suspects[node]:
			exclude(node, "its rank failed first in two consecutive attempts")
		}
	}
	n.suspects = suspects
	return bad
}

// ranksOn reports whether an attempt had ranks on node, and all of them ended in the given
// state.
func (n *nodes) ranksOn(node string, r Result, state rendezvous.State) bool {
	index := slices.Index(n.chosen, node)
	if index < 0 {
		return false
	}
	// Ranks are in the order of the nodes. torchrun is one process on each node.
	each := len(r.Ranks) / len(n.chosen)
	first := index * each
	if len(n.o.Job.Slurm.RanksPerNode) > 0 && len(r.Ranks) == n.o.Job.Ranks() {
		first, each = n.o.Job.FirstRankOn(index), n.o.Job.RanksOn(index)
	}
	return !slices.ContainsFunc(r.Ranks[first:first+each], func(s rendezvous.RankStatus) bool { return s.State != state })
}
