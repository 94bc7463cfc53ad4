package doctor

import (
	"fmt"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/nccl"
	"github.com/ddpbatch/ddpbatch/netif"
)

// network compares the interface that ranks would use on a common network of the hosts with
// NCCL's default interface. For a single host, ranks need no network, so it reports only
// NCCL's default.
func network(hosts []netif.Inventory) []Finding {
	const part = "network"
	choices, err := netif.Agree(hosts, netif.Request{})
	if err != nil {
		return []Finding{bad(part, err.Error(), hints.Of(err))}
	}
	if len(hosts) == 1 {
		return []Finding{alone(hosts[0])}
	}
	c := choices[0]
	found := []Finding{good(part, fmt.Sprintf("%s (%s on %s, mtu %d): %s", c.Prefix, c.Interface, hosts[0].Host, c.MTU, c.Why))}
	if len(c.Warnings) > 0 {
		found[0].Verdict, found[0].Hint = Look, strings.Join(c.Warnings, "; ")
	}
	for i, host := range hosts {
		f := beside(nccl.Stock(host), choices[i].Interface)
		f.Hosts = host.Host
		found = append(found, f)
	}
	return found
}

// beside compares NCCL's default interface on a host with the interface that ddpbatch uses.
func beside(stock, ours string) Finding {
	const part = "nccl alone"
	tell := fmt.Sprintf("programs that ddpbatch starts are told; for others: NCCL_SOCKET_IFNAME==%s GLOO_SOCKET_IFNAME=%[1]s", ours)
	switch stock {
	case ours:
		return good(part, fmt.Sprintf("takes %s, as ddpbatch does", ours))
	case "":
		return bad(part, fmt.Sprintf("finds no interface, ddpbatch %s", ours), tell)
	}
	return look(part, fmt.Sprintf("takes %s, ddpbatch %s", stock, ours), tell)
}

// alone reports NCCL's default interface on a host, if there is no other host to compare with.
func alone(host netif.Inventory) Finding {
	stock := nccl.Stock(host)
	if stock == "" {
		return bad("nccl alone", "finds no interface", "`ddpbatch netif` says what is wrong with each")
	}
	var usable []string
	for _, l := range host.Links {
		if l.ARPHRD != "loopback" && len(l.Addrs) > 0 && l.Flags&(netif.Up|netif.Running) == netif.Up|netif.Running {
			usable = append(usable, l.Name)
		}
	}
	text := fmt.Sprintf("would take %s of %s", stock, strings.Join(usable, ", "))
	if len(usable) < 2 {
		return good("nccl alone", text)
	}
	return look("nccl alone", text, "`ddpbatch netif --peer ADDRESS` says what ddpbatch would take towards another host; `ddpbatch doctor --in-job` compares the nodes of an allocation")
}
