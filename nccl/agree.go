package nccl

import (
	"fmt"
	"slices"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/netif"
)

// A Job is the result of comparing the RDMA ports of all hosts in a job.
type Job struct {
	Hosts int    `json:"hosts"` // number of compared hosts; 0 is unknown
	Layer string `json:"layer"` // "InfiniBand", or "Ethernet" for RoCE; empty if the hosts share neither
	// WithoutRDMA is the reason why no host may use InfiniBand or RoCE although some could. It
	// names the host. It is empty if all hosts can use RDMA, or none can.
	WithoutRDMA string `json:"without_rdma"`
	// Warnings are messages for the user, to be printed once per job.
	Warnings []string `json:"warnings"`
}

// maxHosts limits the hosts that a message names.
const maxHosts = 4

// Agree compares the hosts of a job. NCCL uses InfiniBand or RoCE on each host that has it,
// and hangs if another host lacks it. choices are the hosts' choices in the same order;
// exclude is Facts.Exclude.
func Agree(hosts []netif.Inventory, choices []netif.Choice, exclude ...string) (Job, error) {
	if len(hosts) != len(choices) {
		return Job{}, fmt.Errorf("compare RDMA adapters: %d hosts have %d choices of a network", len(hosts), len(choices))
	}
	job := Job{Hosts: len(hosts), Warnings: []string{}}
	found := map[string][][]rail{}
	for _, layer := range []string{infiniBand, ethernet} {
		all := 0
		for i := range hosts {
			rails, _ := survey(&hosts[i], &choices[i], layer, exclude)
			found[layer] = append(found[layer], rails)
			if len(rails) > 0 {
				all++
			}
		}
		if all == len(hosts) && job.Layer == "" {
			job.Layer = layer
		}
	}
	if job.Layer == ethernet {
		// Do not mix in InfiniBand that only some hosts have.
		if without, why := hostsWithout(hosts, choices, found, infiniBand, exclude); len(without) < len(hosts) {
			job.Warnings = append(job.Warnings, fmt.Sprintf("no usable InfiniBand port on %s (%s), so all hosts use RoCE", format.List(without, maxHosts), why))
		}
	}
	if job.Layer == infiniBand && roceChosen(hosts, choices, found) {
		job.Layer = ethernet
	}
	if job.Layer == "" {
		job.warnMissingPorts(hosts, choices, found, exclude)
		return job, nil
	}
	rails := found[job.Layer]
	if job.Layer == ethernet {
		job.warnUnroutedPorts(hosts, rails)
	}
	job.warnUnevenPorts(hosts, rails)
	return job, nil
}

// roceChosen reports whether each host on its own would prefer RoCE to InfiniBand.
func roceChosen(hosts []netif.Inventory, choices []netif.Choice, found map[string][][]rail) bool {
	for i := range hosts {
		candidates := slices.Concat(found[infiniBand][i], found[ethernet][i])
		if layerOf(candidates, &choices[i]) != ethernet {
			return false
		}
	}
	return true
}

// warnMissingPorts reports the hosts that prevent the other hosts from using RDMA.
func (j *Job) warnMissingPorts(hosts []netif.Inventory, choices []netif.Choice, found map[string][][]rail, exclude []string) {
	layer, most := "", 0
	for _, l := range []string{infiniBand, ethernet} {
		n := 0
		for i := range hosts {
			if len(found[l][i]) > 0 {
				n++
			}
		}
		if n > most {
			layer, most = l, n
		}
	}
	if most == 0 {
		j.warnMissingAddress(hosts, choices, exclude)
		return
	}
	without, why := hostsWithout(hosts, choices, found, layer, exclude)
	j.WithoutRDMA = fmt.Sprintf("no usable %s port on %s (%s)", layerName(layer), format.List(without, maxHosts), why)
	j.Warnings = append(j.Warnings, fmt.Sprintf("%s, but %d of %d hosts have one: NCCL uses the slower TCP on all hosts; exclude or repair %s",
		j.WithoutRDMA, most, len(hosts), format.List(without, maxHosts)))
}

// warnMissingAddress warns if all that prevents RoCE on all hosts is missing IP addresses.
func (j *Job) warnMissingAddress(hosts []netif.Inventory, choices []netif.Choice, exclude []string) {
	for i := range hosts {
		_, rest := survey(&hosts[i], &choices[i], ethernet, exclude)
		for k := range rest {
			if r := &rest[k].rail; r.usedByDefault() && !r.excluded(exclude) && r.wantsAddress() {
				j.Warnings = append(j.Warnings, withoutAddress(r, hostName(hosts, i)))
				return
			}
		}
	}
}

func withoutAddress(r *rail, host string) string {
	return fmt.Sprintf("%s of %s is active but has no IP address, which RoCE requires: NCCL uses the slower TCP; add an address to its interface on every host, or exclude the interface", r, host)
}

// hostsWithout returns the hosts without a usable port of a layer, and the reason for the first.
func hostsWithout(hosts []netif.Inventory, choices []netif.Choice, found map[string][][]rail, layer string, exclude []string) (without []string, why string) {
	for i := range hosts {
		if len(found[layer][i]) > 0 {
			continue
		}
		if without = append(without, hostName(hosts, i)); len(without) > 1 {
			continue
		}
		why = "no such adapter"
		if _, rest := survey(&hosts[i], &choices[i], layer, exclude); len(rest) > 0 {
			// A port that is down is a likelier cause than a port of another layer.
			cause := max(0, slices.IndexFunc(rest, func(a skippedPort) bool { return a.rail.layer == layer }))
			why = fmt.Sprintf("%s: %s", &rest[cause].rail, rest[cause].why)
		}
	}
	return without, why
}

// warnUnroutedPorts warns about a host whose RoCE ports have no route to the next host's.
func (j *Job) warnUnroutedPorts(hosts []netif.Inventory, rails [][]rail) {
	for i := range hosts {
		next := (i + 1) % len(hosts)
		if i == next || anyReaches(rails[i], rails[next], hosts[i].Routes) {
			continue
		}
		j.WithoutRDMA = fmt.Sprintf("no RoCE port of %s has a route to a RoCE port of %s", hostName(hosts, i), hostName(hosts, next))
		j.Warnings = append(j.Warnings, j.WithoutRDMA+": NCCL uses the slower TCP on all hosts; give the ports addresses in one network, or routes")
		return
	}
}

func anyReaches(from, to []rail, routes []netif.Route) bool {
	for i := range from {
		for k := range to {
			if from[i].reaches(&to[k], routes) {
				return true
			}
		}
	}
	return false
}

// warnUnevenPorts warns about hosts with fewer ports than others, because they slow down all hosts.
func (j *Job) warnUnevenPorts(hosts []netif.Inventory, rails [][]rail) {
	most := 0
	for i := range hosts {
		most = max(most, len(rails[i]))
	}
	var fewer []string
	for i := range hosts {
		if len(rails[i]) < most {
			fewer = append(fewer, fmt.Sprintf("%s (%d)", hostName(hosts, i), len(rails[i])))
		}
	}
	if len(fewer) > 0 {
		j.Warnings = append(j.Warnings, fmt.Sprintf("fewer than %[2]d usable %[1]s ports on %[3]s: these hosts slow down all others", layerName(j.Layer), most, format.List(fewer, maxHosts)))
	}
}

func hostName(hosts []netif.Inventory, i int) string {
	if hosts[i].Host != "" {
		return hosts[i].Host
	}
	return fmt.Sprintf("host %d", i)
}
