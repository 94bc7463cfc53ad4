package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/netif"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// Merge combines the findings of the nodes of a job. Findings that are equal on all nodes
// appear once. Others appear once for each group of nodes with equal results. If nodes should
// be equal, Merge adds a warning that lists the differences. Values that always differ, such
// as free space, are from the first node. Before and After are the times at which the first
// node sent its request and had received all replies.
func Merge(nodes []Node, before, after time.Time) []Finding {
	var hosts []netif.Inventory
	for _, n := range nodes {
		if len(n.Inventory.Links) > 0 {
			hosts = append(hosts, n.Inventory)
		}
	}
	var found []Finding
	if len(hosts) > 0 {
		found = foldHosts(network(hosts), len(hosts))
	}
	var parts []string
	byPart := map[string][]Finding{}
	for _, n := range nodes {
		for _, f := range n.Findings {
			if byPart[f.Part] == nil {
				parts = append(parts, f.Part)
			}
			f.Hosts = n.Host
			byPart[f.Part] = append(byPart[f.Part], f)
		}
	}
	for _, part := range parts {
		kinds := foldHosts(byPart[part], len(nodes))
		if len(byPart[part]) < len(nodes) {
			kinds = append(kinds, look(part, fmt.Sprintf("only on %d of %d nodes", len(byPart[part]), len(nodes)), "nodes of a job should be alike: ask for nodes of one kind with slurm.constraint"))
		}
		found = append(found, kinds...)
		if len(kinds) > 1 && alike[part] {
			found = append(found, differ(part, kinds))
		}
	}
	return append(found, clocks(nodes, before, after))
}

// alike are the parts that must be equal on all nodes of a job.
var alike = map[string]bool{"driver": true, "nccl": true, "cublaslt": true, "kernel": true, "processor": true, "files": true,
	"limit memlock": true, "limit nofile": true, "limit nproc": true}

// differ returns a warning that lists the differences between nodes.
func differ(part string, kinds []Finding) Finding {
	var words []string
	for _, f := range kinds {
		words = append(words, fmt.Sprintf("%s: %s", f.Hosts, strings.TrimSpace(f.Version+" "+f.essence())))
	}
	return look(part+" differs", strings.Join(words, "; "),
		"jobs are as slow as their slowest node, and versions that do not match may fail: use nodes of one kind (slurm.constraint), and one environment on all")
}

// essence returns the part of a finding that must be equal on all nodes. It excludes values
// such as free space and measured times.
func (f Finding) essence() string {
	switch {
	case f.Part == "files":
		text, _, _ := strings.Cut(f.Detail, ",")
		return text
	case f.Part == "/dev/shm", f.Part == "files speed", f.Part == "clock":
		return ""
	case strings.HasPrefix(f.Part, "gpu ") && f.GPU != nil:
		return f.GPU.Name
	}
	return strings.TrimSpace(f.Detail + " " + f.Path)
}

// foldHosts combines equal findings of different hosts. Total is the number of all hosts. A
// finding that all hosts share has no node list.
func foldHosts(all []Finding, total int) []Finding {
	var found []Finding
	hosts := map[int][]string{}
	for _, f := range all {
		at := slices.IndexFunc(found, func(o Finding) bool {
			return o.Part == f.Part && o.Verdict == f.Verdict && o.Version == f.Version && o.essence() == f.essence()
		})
		if at < 0 {
			at = len(found)
			found = append(found, f)
		}
		if f.Hosts != "" {
			hosts[at] = append(hosts[at], f.Hosts)
		}
	}
	for i := range found {
		found[i].Hosts = ""
		if len(hosts[i]) > 0 && (len(hosts[i]) < total || total == 1) {
			found[i].Hosts = slurm.FoldHosts(hosts[i])
		}
	}
	return found
}

// mostSkew is the maximum clock difference between nodes.
const mostSkew = 2 * time.Second

// clocks reports nodes whose clock is certainly wrong: the time that a node reported is before
// the request or after the reply.
func clocks(nodes []Node, before, after time.Time) Finding {
	const part = "clocks of the nodes"
	var wrong []string
	for _, n := range nodes {
		off := time.Duration(0)
		switch {
		case n.Time.Before(before):
			off = n.Time.Sub(before)
		case n.Time.After(after):
			off = n.Time.Sub(after)
		}
		if off.Abs() > mostSkew {
			wrong = append(wrong, fmt.Sprintf("%s by at least %s", n.Host, off.Round(time.Millisecond)))
		}
	}
	if len(wrong) > 0 {
		return look(part, "off the first node's: "+strings.Join(wrong, ", "), "logs of several nodes cannot be compared: tell the centre")
	}
	return good(part, fmt.Sprintf("none is off by more than %s", after.Sub(before).Round(100*time.Millisecond)))
}
