package nccl

import (
	"github.com/ddpbatch/ddpbatch/netif"
)

// Facts are the inputs of [Plan]. Only Choice is required. Plan does not set variables that
// depend on unknown facts.
type Facts struct {
	Choice    netif.Choice    // network of this host
	Inventory netif.Inventory // adapters, GPUs, and routes of this host
	Job       Job             // result of [Agree]; the zero value is unknown
	Exclude   []string        // interfaces that must not be used, including the adapters below them
	Version   int             // NCCL version, as [ParseVersion] returns it; 0 is unknown
	Plugin    string          // name, for NCCL_NET, of an installed network plugin

	LocalRank int    // local rank; -1 if several ranks share the environment, as with torchrun
	GPU       string // bus address of the rank's GPU; empty to derive it from LocalRank

	// DebugFile is the path of NCCL's log, with NCCL's placeholders: %h is the host, %p the
	// process, and %% a percent sign. If it is empty, Plan does not change NCCL's logging.
	DebugFile string

	Lookup func(name string) (string, bool) // current environment
	// FileExists reports whether a file exists on this host. It is nil if this is unknown.
	FileExists func(path string) bool
	Site       Profile
	Conf       []Setting // result of [ReadConf]
}

type planner struct {
	Facts
	env   Env
	rails []rail // RDMA ports for NCCL's data; nil if IP carries the data
}

// Plan returns the environment of a rank. It differs between hosts and, with several adapters,
// between the ranks of a host. Plan does not change variables that the user, the site profile,
// or NCCL's own files have set, in this order of precedence. It lists them with their source.
func Plan(f Facts) Env {
	p := planner{Facts: f}
	if p.Lookup == nil {
		p.Lookup = func(string) (string, bool) { return "", false }
	}
	p.env = Env{Vars: []Var{}, Warnings: []string{}, Notes: []string{}, inherited: map[string]bool{}}
	p.setSockets()
	if !p.Choice.Addr.IsLoopback() {
		p.setRDMA()
		p.setPlugin()
	}
	p.checkRecent()
	p.setDebug()
	p.setPlainName(glooInterface, "Gloo")
	p.setPlainName(tpInterface, "TensorPipe")
	if !p.Choice.Addr.IsLoopback() {
		p.setUCX()
		p.setOpenMPI()
	}
	return p.env
}
