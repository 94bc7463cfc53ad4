package process

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/environ"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

// Variables that identify the processes of a rank.
const (
	RunVariable  = "DDPBATCH_RUN_ID"
	RankVariable = "RANK"
	NodeVariable = "SLURMD_NODENAME"
	// ComponentVariable is the name of the component to which a process belongs.
	ComponentVariable = "DDPBATCH_COMPONENT"
	// RendezvousVariable is set in ranks of ddpbatch, but not in the programs that they start.
	RendezvousVariable = "DDPBATCH_RENDEZVOUS"
)

// maxEnviron is the maximum size of the environment of a process of a rank, in bytes.
const maxEnviron = 1 << 20

// A Run identifies the processes of a run on this host.
type Run struct {
	ID   string
	Node string // name of this Slurm node, or empty: several nodes of a test cluster can share a host
}

// Rank returns the rank of a process, and its environment. A process belongs to a rank if its
// environment has the ID of the run and a RANK, as ddpbatch and torchrun set them. Rank returns
// false for processes of other users, of other nodes, and of ddpbatch itself.
func (r Run) Rank(pid int) (rank int, env []string, ok bool) {
	env, ok = readEnviron(pid)
	if !ok {
		return 0, nil, false
	}
	if id, ok := environ.Lookup(env, RunVariable); !ok || id != r.ID {
		return 0, nil, false
	}
	if node, ok := environ.Lookup(env, NodeVariable); ok && r.Node != "" && node != r.Node {
		return 0, nil, false
	}
	if _, ok := environ.Lookup(env, RendezvousVariable); ok {
		return 0, nil, false
	}
	value, _ := environ.Lookup(env, RankVariable)
	rank, err := strconv.Atoi(value)
	return rank, env, err == nil && rank >= 0
}

// readEnviron returns the initial environment of a process of this user.
func readEnviron(pid int) (env []string, ok bool) {
	dir := fmt.Sprintf("/proc/%d", pid)
	info, err := os.Stat(dir)
	if err != nil {
		return nil, false
	}
	if uid, ok := safefile.Owner(info); !ok || uid != os.Geteuid() {
		return nil, false
	}
	text, err := os.ReadFile(dir + "/environ")
	if err != nil || len(text) > maxEnviron {
		return nil, false
	}
	return strings.Split(string(text), "\x00"), true
}

// OfComponent returns the processes of this user that belong to a component of a run, by their
// environment.
func OfComponent(run, name string) (pids []int) {
	all, _ := IDs()
	for _, pid := range all {
		env, ok := readEnviron(pid)
		if id, _ := environ.Lookup(env, RunVariable); !ok || id != run || id == "" {
			continue
		}
		if component, _ := environ.Lookup(env, ComponentVariable); component == name {
			pids = append(pids, pid)
		}
	}
	return pids
}
