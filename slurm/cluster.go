package slurm

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/lazyregexp"
)

// Version returns the version of Slurm's client programs, such as "23.11.4". It does not
// contact the controller.
func (c Client) Version(ctx context.Context) (string, error) {
	out, err := c.run(ctx, "", "sbatch", "--version")
	if err != nil {
		return "", fmt.Errorf("query Slurm's version: %w", err)
	}
	// The output is "slurm 23.11.4"; on Debian, "slurm-wlm 22.05.8".
	if words := strings.Fields(out); len(words) > 0 {
		version := words[len(words)-1]
		if _, _, ok := parseVersion(version); ok {
			return version, nil
		}
	}
	return "", fmt.Errorf("query Slurm's version: unexpected output of sbatch: %s", excerpt(out, 0))
}

var versionNumber = lazyregexp.New(`(\d{1,4})\.(\d{1,4})`)

// parseVersion returns the year and the month in the version of a release, such as
// "23.11.4" or "slurm-wlm 22.05.8".
func parseVersion(s string) (year, month int, ok bool) {
	m := versionNumber().FindStringSubmatch(s)
	if m == nil {
		return 0, 0, false
	}
	year, _ = strconv.Atoi(m[1]) // at most 4 digits
	month, _ = strconv.Atoi(m[2])
	return year, month, true
}

// Config returns the cluster's configuration as "scontrol show config" prints it: the keys
// of slurm.conf and their values, "(null)" for unset keys.
func (c Client) Config(ctx context.Context) (map[string]string, error) {
	out, err := c.run(ctx, "", "scontrol", "show", "config")
	if err != nil {
		return nil, fmt.Errorf("query Slurm's configuration: %w", err)
	}
	return parseConfig(out), nil
}

// parseConfig parses lines such as "KillWait                = 30 sec". The first value of a
// key counts: sections of plugins follow.
func parseConfig(out string) map[string]string {
	config := map[string]string{}
	for line := range strings.Lines(out) {
		key, value, ok := strings.Cut(line, " = ")
		key = strings.TrimSpace(key)
		if _, exists := config[key]; ok && !exists && key != "" && !strings.ContainsFunc(key, isNotKeyRune) {
			config[key] = oneLine(value)
		}
	}
	return config
}

// isNotKeyRune reports whether r does not occur in keys of slurm.conf.
func isNotKeyRune(r rune) bool {
	return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
}

// NodeState is the state of a node in the long form of sinfo, such as "allocated", "mixed",
// "draining", or "down*" (sinfo(1), "NODE STATE CODES").
type NodeState string

// downStates are the states of nodes that run no job, or stop running jobs. A draining node
// is not among them: it still runs its jobs.
var downStates = []string{"down", "drained", "fail", "failing", "error", "unknown", "powering_down", "powered_down", "power_down", "inval", "future"}

// Down reports whether the node cannot start a step: it is down, has failed, or does not
// respond to the controller.
func (s NodeState) Down() bool {
	base, isUnresponsive := strings.CutSuffix(string(s), "*")
	return isUnresponsive || slices.Contains(downStates, strings.TrimRight(base, "~#!%$@^-+"))
}

// Draining reports whether Slurm starts no more jobs on the node, because an administrator
// or a health check has drained it.
func (s NodeState) Draining() bool { return strings.HasPrefix(string(s), "drain") }

// NodeStates returns the states of nodes, in one call. Nodes that Slurm does not list are
// missing in the result. The controller may take its SlurmdTimeout (300 s by default) to
// notice that a node is down.
func (c Client) NodeStates(ctx context.Context, nodes []string) (map[string]NodeState, error) {
	list := FoldHosts(nodes)
	out, err := c.run(ctx, "", "sinfo", "--Node", "--noheader", "--nodes="+list, "--format=%N|%T")
	if err != nil {
		return nil, fmt.Errorf("query state of nodes %s: %w", list, err)
	}
	return parseNodeStates(out), nil
}

// parseNodeStates parses lines of name and state. A node has a line for each of its
// partitions.
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
