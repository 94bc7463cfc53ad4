package netif

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// rename renames the links of an inventory, including all references.
func rename(inv Inventory, names map[string]string) Inventory {
	to := func(name string) string {
		if other, known := names[name]; known {
			return other
		}
		return name
	}
	inv.Links = slices.Clone(inv.Links)
	for i := range inv.Links {
		l := &inv.Links[i]
		l.Name, l.Master, l.Parent = to(l.Name), to(l.Master), to(l.Parent)
	}
	inv.Routes = slices.Clone(inv.Routes)
	for i := range inv.Routes {
		inv.Routes[i].Dev = to(inv.Routes[i].Dev)
	}
	inv.Rules = slices.Clone(inv.Rules)
	for i := range inv.Rules {
		inv.Rules[i].IIF, inv.Rules[i].OIF = to(inv.Rules[i].IIF), to(inv.Rules[i].OIF)
	}
	return inv
}

// swapped returns a random permutation of the link names of a host.
func swapped(rng *rand.Rand, inv Inventory) map[string]string {
	dealt := make([]string, len(inv.Links))
	for i, l := range inv.Links {
		dealt[i] = l.Name
	}
	rng.Shuffle(len(dealt), func(i, j int) { dealt[i], dealt[j] = dealt[j], dealt[i] })
	names := make(map[string]string, len(dealt))
	for i, l := range inv.Links {
		names[l.Name] = dealt[i]
	}
	return names
}

func shuffled[T any](rng *rand.Rand, list []T) []T {
	list = slices.Clone(list)
	rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// TestChooseProperties checks that neither the order of links, routes, and rules nor any interface
// name changes which interface is chosen. The order of links changes nothing in the result.
func TestChooseProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 11))
	for _, tc := range slices.Concat(loadCases(t), moreCases(t)) {
		want, err := Choose(tc.inventory, tc.Peers, Request{})
		if err != nil {
			t.Fatal(err)
		}
		for range 30 {
			inv := tc.inventory
			inv.Links = shuffled(rng, inv.Links)
			if got, err := Choose(inv, tc.Peers, Request{}); err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("%s: links in another order: %+v, %v, want %+v", tc.ID, got, err, want)
			}
			inv.Routes, inv.Rules = shuffled(rng, inv.Routes), shuffled(rng, inv.Rules)
			names := swapped(rng, inv)
			got, err := Choose(rename(inv, names), tc.Peers, Request{})
			if err != nil {
				t.Fatalf("%s: with names %v: %v", tc.ID, names, err)
			}
			if got.Interface != names[want.Interface] || got.Index != want.Index || got.Addr != want.Addr {
				t.Fatalf("%s: with names %v: %s %s, want %s (%s) %s", tc.ID, names, got.Interface, got.Addr, names[want.Interface], want.Interface, want.Addr)
			}
		}
	}
}

// twins is a host with two equivalent networks, in an order that depends on i.
func twins(i int) *hostSpec {
	b := newHostSpec(fmt.Sprintf("t%d", i))
	a, c := Link{Name: "a", Index: 2 + i%2}, Link{Name: "c", Index: 3 - i%2}
	return b.link(a, fmt.Sprintf("10.31.0.%d/24", i+1)).link(c, fmt.Sprintf("10.30.0.%d/24", i+1))
}

// policyHost has two NICs on one subnet, with a rule and a table for each.
func policyHost(i int) *hostSpec {
	slow, fast := fmt.Sprintf("172.16.%d.%d", i/250, i%250+1), fmt.Sprintf("172.16.%d.%d", 8+i/250, i%250+1)
	b := newHostSpec(fmt.Sprintf("p%d", i)).
		link(Link{Name: "eno1", Speed: 1000}, slow+"/20").link(Link{Name: "ens2", Speed: 25000}, fast+"/20").
		routeTable(1, "172.16.0.0/20", "eno1", "").routeTable(2, "172.16.0.0/20", "ens2", "")
	return b.rule(100, slow, 1).rule(101, fast, 2)
}

// TestAgreeProperties checks that all hosts agree on the same network, in any order of hosts and
// with any interface names.
func TestAgreeProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	for name, host := range map[string]func(int) *hostSpec{
		"slurm": slurmHost, "cloud": cloudHost, "twins": twins, "policy": policyHost,
		"racks": func(i int) *hostSpec { return rackHost(i/2, 1+i%2) },
	} {
		var nodes []Inventory
		for i := range 6 {
			nodes = append(nodes, host(i).done(t))
		}
		choices, err := Agree(nodes, Request{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := make(map[string]Choice)
		for i, c := range choices {
			want[nodes[i].Host] = c
		}
		for range 40 {
			others := shuffled(rng, nodes)
			names := make([]map[string]string, len(others))
			for i := range others {
				names[i] = swapped(rng, others[i])
				others[i] = rename(others[i], names[i])
				others[i].Links = shuffled(rng, others[i].Links)
			}
			got, err := Agree(others, Request{})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for i, c := range got {
				w := want[others[i].Host]
				if c.Addr != w.Addr || c.Index != w.Index || c.Interface != names[i][w.Interface] {
					t.Fatalf("%s: %s uses %s, listed in another order %s", name, others[i].Host, w.Addr, c.Addr)
				}
			}
		}
	}
}
