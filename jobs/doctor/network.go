package doctor

import (
	"fmt"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/nccl"
	"github.com/ddpbatch/ddpbatch/netif"
)

// checkNetwork compares the interface that ranks would use on a common network of the hosts with
// NCCL's default interface. For a single host, ranks need no network, so it reports only
// NCCL's default.
func checkNetwork(hosts []netif.Inventory) []Finding {
	const part = "network"
	choices, err := netif.Agree(hosts, netif.Request{})
	if err != nil {
		return []Finding{fail(part, err.Error(), hints.Of(err))}
	}
	if len(hosts) == 1 {
		return []Finding{describeDefault(hosts[0])}
	}
	c := choices[0]
	found := []Finding{pass(part, fmt.Sprintf("%s (%s on %s, mtu %d): %s", c.Prefix, c.Interface, hosts[0].Host, c.MTU, c.Why))}
	if len(c.Warnings) > 0 {
		found[0].Level, found[0].Hint = Warn, strings.Join(c.Warnings, "; ")
	}
	for i, host := range hosts {
		f := compareWithNCCL(nccl.DefaultInterface(host), choices[i].Interface)
		f.Hosts = host.Host
		found = append(found, f)
	}
	return found
}

// compareWithNCCL compares NCCL's default interface on a host with the interface that ddpbatch
// uses.
func compareWithNCCL(ncclDefault, chosen string) Finding {
	const part = "nccl alone"
	hint := fmt.Sprintf("for programs that ddpbatch does not start, set NCCL_SOCKET_IFNAME==%s GLOO_SOCKET_IFNAME=%[1]s", chosen)
	switch ncclDefault {
	case chosen:
		return pass(part, fmt.Sprintf("selects %s, as ddpbatch does", chosen))
	case "":
		return fail(part, fmt.Sprintf("finds no interface; ddpbatch selects %s", chosen), hint)
	}
	return warn(part, fmt.Sprintf("selects %s; ddpbatch selects %s", ncclDefault, chosen), hint)
}

// describeDefault reports NCCL's default interface on a host, if there is no other host to
// compare with.
func describeDefault(host netif.Inventory) Finding {
	ncclDefault := nccl.DefaultInterface(host)
	if ncclDefault == "" {
		return fail("nccl alone", "finds no interface", "run `ddpbatch netif` to see why each interface is rejected")
	}
	var usable []string
	for _, l := range host.Links {
		if l.ARPHRD != "loopback" && len(l.Addrs) > 0 && l.Flags&(netif.Up|netif.Running) == netif.Up|netif.Running {
			usable = append(usable, l.Name)
		}
	}
	text := fmt.Sprintf("would select %s of %s", ncclDefault, strings.Join(usable, ", "))
	if len(usable) < 2 {
		return pass("nccl alone", text)
	}
	return warn("nccl alone", text, "run `ddpbatch netif --peer ADDRESS` to see the choice of ddpbatch, or `ddpbatch doctor --in-job` to compare the nodes of an allocation")
}
