package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/netif"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// Merge puts what was found on the nodes of a job together: what is the same is said
// once; what is not is a finding for each kind of node, and where nodes should be the
// same, a look of its own. Figures that always differ, such as what is free, are those of
// the first node. Before and After are the times at which the first node asked,
// and had all answers.
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

// alike are parts that should be the same on all nodes of a job, to the letter.
var alike = map[string]bool{"driver": true, "nccl": true, "cublaslt": true, "kernel": true, "processor": true, "files": true,
	"limit memlock": true, "limit nofile": true, "limit nproc": true}

// differ names what differs between nodes.
func differ(part string, kinds []Finding) Finding {
	var words []string
	for _, f := range kinds {
		words = append(words, fmt.Sprintf("%s: %s", f.Hosts, strings.TrimSpace(f.Version+" "+f.essence())))
	}
	return look(part+" differs", strings.Join(words, "; "),
		"jobs are as slow as their slowest node, and versions that do not match may fail: use nodes of one kind (slurm.constraint), and one environment on all")
}

// essence is what must be the same: not how much is free, or how long something took.
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

// foldHosts puts findings together that say the same of different hosts; of all hosts
// there are total.
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

// mostSkew is how far clocks may be apart.
const mostSkew = 2 * time.Second

// clocks says whether a node's clock is certainly wrong: it told a time before it was
// asked, or after it had answered.
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
