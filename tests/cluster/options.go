//go:build linux

package cluster

import (
	"fmt"
	"path/filepath"
)

// maxNodes is the size of the largest cluster: node i has the host address i in a /24, whose last
// addresses have other uses.
const maxNodes = 200

// Options configures a cluster. The zero value is valid.
type Options struct {
	// Dir is the cluster's own directory for configuration, logs, keys, and Slurm's state. It must
	// be new, empty, or left by an earlier cluster, in which case Start wipes it. It remains after
	// Stop, so that the logs can be read. If it is empty, the cluster uses a temporary directory
	// that Stop removes.
	Dir string
	// Nodes is the number of nodes, n1 and up. 0 means 4, and -1 means none: only slurmctld, for
	// [Cluster.Reconfigure].
	Nodes int
	// CPUs is the number of CPUs that Slurm counts on each node, independent of the machine. 0
	// means 4.
	CPUs int
	// GPUs is the number of GPUs (gres) that Slurm counts on each node. 0 means 2, and -1 means
	// none.
	GPUs int
	// GPUType is the type of the GPUs, such as "3g.20gb"; empty for GPUs without a type.
	GPUType string
	// Gres is another generic resource of each node that is only counted, with its number, such
	// as "nvme:2"; empty for none.
	Gres string
	// Topology is the text of topology.conf; empty for none. SlurmConf must name the plugin that
	// reads it, such as "TopologyPlugin=topology/block".
	Topology string
	// Accounting also starts slurmdbd and a MariaDB for this cluster, so that sacct and sacctmgr
	// work. The account is "research", with the user root. Limits are not enforced. The start takes
	// a few seconds longer.
	Accounting bool
	// SlurmConf contains lines for slurm.conf. A line such as "KillWait=2" replaces this package's
	// line with the same key. A NodeName or PartitionName line replaces the line with the same key
	// and name ("PartitionName=low Nodes=ALL MaxTime=1"). All other lines are added.
	SlurmConf []string
	// Users are unprivileged accounts on the cluster's machines, for [Cluster.OnNodeAs] and for
	// jobs. Their files are on the file system that all machines share.
	Users []User
}

// withDefaults sets defaults and rejects invalid options.
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
		return o, fmt.Errorf("%d CPUs and %d GPUs per node: need at least 1 and 0", o.CPUs, o.GPUs)
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
