package slurm

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// NodeState is the state of a node, as sinfo writes it at length: "allocated",
// "mixed", "draining", "down*" (sinfo(1), "NODE STATE CODES").
type NodeState string

// gone are the states in which a node runs nothing, or soon will not. A node that is
// being drained still runs what it has.
var gone = []string{"down", "drained", "fail", "failing", "error", "unknown", "powering_down", "powered_down", "power_down", "inval", "future"}

// Down says whether nothing can be started on the node: it is down, has failed, or
// does not answer the controller.
func (s NodeState) Down() bool {
	base, silent := strings.CutSuffix(string(s), "*")
	return silent || slices.Contains(gone, strings.TrimRight(base, "~#!%$@^-+"))
}

// Draining says that the node is to get no more jobs: somebody, or a health check,
// found something wrong with it.
func (s NodeState) Draining() bool { return strings.HasPrefix(string(s), "drain") }

// NodeStates asks the controller, in one call, how nodes are. A node that it does not
// tell of is not in the answer. The controller may take its SlurmdTimeout (300 s by
// default) to find out that a node is down.
func (c Client) NodeStates(ctx context.Context, nodes []string) (map[string]NodeState, error) {
	list := FoldHosts(nodes)
	out, err := c.run(ctx, "", "sinfo", "--Node", "--noheader", "--nodes="+list, "--format=%N|%T")
	if err != nil {
		return nil, fmt.Errorf("asking for the state of the nodes %s: %w", list, err)
	}
	return parseNodeStates(out), nil
}

// parseNodeStates reads lines of name and state; a node stands there once for each
// partition that has it.
func parseNodeStates(out string) map[string]NodeState {
	states := map[string]NodeState{}
	for line := range strings.Lines(out) {
		name, state, ok := strings.Cut(strings.TrimSpace(line), "|")
		if ok && name != "" && state != "" {
			states[name] = NodeState(strings.ToLower(state))
		}
	}
	return states
}
