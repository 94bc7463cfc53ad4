//go:build linux

package cluster

import (
	"fmt"
	"path/filepath"
)

// The largest cluster: node i has the host address i in a /24 whose last addresses are taken.
const maxNodes = 200

// Options says what cluster to start. The zero value is a good one.
type Options struct {
	// Dir is the cluster's own directory: configuration, logs, keys, Slurm's state. It must be
	// new, empty, or left by an earlier cluster (which is then wiped). It stays after Stop, so
	// that the logs can be read. Empty means a temporary directory that Stop removes.
	Dir string
	// Nodes is how many nodes there are, n1 and up; 0 means 4, and -1 means none: slurmctld alone,
	// for [Cluster.Reconfigure].
	Nodes int
	// CPUs is how many processors Slurm counts on each node, whatever the machine has; 0 means 4.
	CPUs int
	// GPUs is how many GPUs (gres) Slurm counts on each node; 0 means 2, and -1 means none.
	GPUs int
	// Accounting starts slurmdbd and a MariaDB of the cluster's own beside slurmctld, so that sacct
	// and sacctmgr answer. The account is "research", with the user root in it; limits are not
	// enforced. The start takes a few seconds more.
	Accounting bool
	// SlurmConf has lines for slurm.conf. A line replaces the one with the same key that this
	// package would write ("KillWait=2"); a NodeName or PartitionName line replaces the one with
	// the same key and name ("PartitionName=low Nodes=ALL MaxTime=1"), and is added otherwise.
	SlurmConf []string
	// Users are unprivileged accounts on the cluster's machines, for [Cluster.OnNodeAs] and for
	// jobs. Their files are on the file system that all machines share.
	Users []User
}

// withDefaults fills in what was left open and refuses what cannot be.
func (o Options) withDefaults() (Options, error) {
	switch o.Nodes {
	case 0:
		o.Nodes = 4
	case -1:
		o.Nodes = 0
	}
	if o.CPUs == 0 {
		o.CPUs = 4
	}
	switch o.GPUs {
	case 0:
		o.GPUs = 2
	case -1:
		o.GPUs = 0
	}
	if o.Nodes < 0 || o.Nodes > maxNodes {
		return o, fmt.Errorf("%d nodes: need 0 to %d", o.Nodes, maxNodes)
	}
	if o.CPUs < 1 || o.GPUs < 0 {
		return o, fmt.Errorf("%d processors and %d GPUs per node: need at least 1 and 0", o.CPUs, o.GPUs)
	}
	for _, line := range o.SlurmConf {
		if confKey(line) == "" {
			return o, fmt.Errorf("slurm.conf line %q: need one key=value line", line)
		}
	}
	if err := checkUsers(o.Users); err != nil {
		return o, err
	}
	if o.Dir != "" {
		dir, err := filepath.Abs(o.Dir)
		if err != nil {
			return o, fmt.Errorf("find directory %q: %w", o.Dir, err)
		}
		o.Dir = dir
	}
	return o, nil
}
