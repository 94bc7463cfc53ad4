package launch

import (
	"github.com/ddpbatch/ddpbatch/internal/environ"
	"github.com/ddpbatch/ddpbatch/jobs/usage"
)

// measureUsage measures the ranks of the program on this node until stop is called. Only the first
// rank of a node measures. Program is the environment of the program.
func (r *Rank) measureUsage(o ProgramOptions, program []string) (stop func()) {
	if r.Info.LocalRank != 0 {
		return func() {}
	}
	run, ok := environ.Lookup(program, RunVariable)
	if !ok {
		return func() {}
	}
	node := r.Info.NodeRank
	return usage.Start(usage.Options{Run: run, Ranks: r.perNode, Environ: o.Environ,
		Node:  usage.Node{Node: node, Host: r.Info.Host, Attempt: r.attempt},
		Write: func(text []byte) error { return r.dir.WriteUsage(r.attempt, node, text) }})
}
