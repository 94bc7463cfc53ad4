package nccl

import (
	"github.com/ddpbatch/ddpbatch/netif"
)

// Facts are what the environment of a rank follows from. Only Choice is needed;
// what is not known is not set.
type Facts struct {
	Choice    netif.Choice    // the network of this host
	Inventory netif.Inventory // of this host: adapters, GPUs, routes
	Job       Job             // what [Agree] found for all hosts; the zero value is not known
	Exclude   []string        // interfaces that must not be used, nor the adapters below them
	Version   int             // NCCL's, as [ParseVersion] returns it; 0 is not known
	Plugin    string          // the name, for NCCL_NET, of a network plugin that is known to be there

	LocalRank int    // of the rank, on its host; -1 if ranks share the environment, as those that torchrun starts
	GPU       string // bus address of the rank's GPU; empty to take it from LocalRank

	// DebugFile is where NCCL writes what it has to say, with its own placeholders:
	// %h the host and %p the process; %% is a percent sign. Empty leaves it alone.
	DebugFile string

	Lookup func(name string) (string, bool) // the environment so far
	Site   Profile
	Conf   []Setting // what [ReadConf] found
}

type planner struct {
	Facts
	env   Env
	rails []rail // the RDMA ports for NCCL's data; nil where IP carries them
}

// Plan makes the environment of a rank; it differs between hosts, and, where
// there are several adapters, between the ranks of a host. What a user, the
// site's profile or one of NCCL's own files has set already is left alone, in
// this order, and listed with who set it.
func Plan(f Facts) Env {
	p := planner{Facts: f}
	if p.Lookup == nil {
		p.Lookup = func(string) (string, bool) { return "", false }
	}
	p.env = Env{Vars: []Var{}, Warnings: []string{}, Notes: []string{}, inherited: map[string]bool{}}
	p.sockets()
	if !p.Choice.Addr.IsLoopback() {
		p.verbs()
		p.plugin()
	}
	p.debug()
	p.plain(glooInterface, "Gloo")
	p.plain(tpInterface, "TensorPipe")
	if !p.Choice.Addr.IsLoopback() {
		p.ucx()
		p.openMPI()
	}
	return p.env
}
