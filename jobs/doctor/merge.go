package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/netif"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// merge combines the findings of the nodes of a job. Findings that are equal on all nodes
// appear once. Others appear once for each group of nodes with equal results. If nodes should
// be equal, merge adds a warning that lists the differences. Values that always differ, such
// as free space, are from the first node. Before and After are the times at which the first
// node sent its request and had received all replies.
func merge(nodes []Node, before, after time.Time) []Finding {
	var hosts []netif.Inventory
	for _, n := range nodes {
		if len(n.Inventory.Links) > 0 {
			hosts = append(hosts, n.Inventory)
		}
	}
	var found []Finding
	if len(hosts) > 0 {
		found = mergeHosts(checkNetwork(hosts), len(hosts))
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
		kinds := mergeHosts(byPart[part], len(nodes))
		if len(byPart[part]) < len(nodes) {
			kinds = append(kinds, warn(part, fmt.Sprintf("only on %d of %d nodes", len(byPart[part]), len(nodes)), "request nodes of one kind with slurm.constraint"))
		}
		found = append(found, kinds...)
		if len(kinds) > 1 && mustMatch[part] {
			found = append(found, differenceWarning(part, kinds))
		}
	}
	return append(found, compareClocks(nodes, before, after))
}

// mustMatch are the parts that must be equal on all nodes of a job.
var mustMatch = map[string]bool{"driver": true, "nccl": true, "cublaslt": true, "kernel": true, "processor": true, "files": true,
	"limit memlock": true, "limit nofile": true, "limit nproc": true}

// differenceWarning returns a warning that lists the differences between nodes.
func differenceWarning(part string, kinds []Finding) Finding {
	var words []string
	for _, f := range kinds {
		words = append(words, fmt.Sprintf("%s: %s", f.Hosts, strings.TrimSpace(f.Version+" "+f.comparableText())))
	}
	return warn(part+" differs", strings.Join(words, "; "),
		"request nodes of one kind (slurm.constraint), and use the same environment on all nodes")
}

// comparableText returns the part of a finding that must be equal on all nodes. It excludes values
// such as free space and measured times.
func (f Finding) comparableText() string {
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

// mergeHosts combines equal findings of different hosts. Total is the number of all hosts. A
// finding that all hosts share has no node list, unless there is only one host.
func mergeHosts(all []Finding, total int) []Finding {
	var found []Finding
	hosts := map[int][]string{}
	for _, f := range all {
		index := slices.IndexFunc(found, func(o Finding) bool {
			return o.Part == f.Part && o.Level == f.Level && o.Version == f.Version && o.comparableText() == f.comparableText()
		})
		if index < 0 {
			index = len(found)
			found = append(found, f)
		}
		if f.Hosts != "" {
			hosts[index] = append(hosts[index], f.Hosts)
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

// maxSkew is the maximum clock difference between nodes.
const maxSkew = 2 * time.Second

// compareClocks reports nodes whose clock is certainly wrong: the time that a node reported is
// before the request or after the reply.
func compareClocks(nodes []Node, before, after time.Time) Finding {
	const part = "clocks of the nodes"
	var wrong []string
	for _, n := range nodes {
		skew := time.Duration(0)
		switch {
		case n.Time.Before(before):
			skew = n.Time.Sub(before)
		case n.Time.After(after):
			skew = n.Time.Sub(after)
		}
		if skew.Abs() > maxSkew {
			wrong = append(wrong, fmt.Sprintf("%s by at least %s", n.Host, skew.Round(time.Millisecond)))
		}
	}
	if len(wrong) > 0 {
		return warn(part, "different from the first node's: "+strings.Join(wrong, ", "), "tell the center; log times differ between nodes")
	}
	return pass(part, fmt.Sprintf("all within %s of the first node", after.Sub(before).Round(100*time.Millisecond)))
}
