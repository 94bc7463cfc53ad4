package netif

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
)

func TestReadInventoryRefuses(t *testing.T) {
	link := func(change string) string {
		l := map[string]any{"index": 2, "name": "eth0", "arphrd": "ether", "flags": "up", "oper": "up", "mtu": 1500, "speed": -1, "addrs": []string{"10.0.0.1/24"}}
		if err := json.Unmarshal([]byte(change), &l); err != nil {
			t.Fatal(err)
		}
		text, _ := json.Marshal(l)
		return fmt.Sprintf(`{"links": [%s]}`, text)
	}
	route := func(text string) string {
		return `{"links": [{"index": 2, "name": "eth0", "oper": "up", "flags": "up"}], "routes": [` + text + `]}`
	}
	tests := []struct{ name, text, want string }{
		{"nothing", ``, "line 1: EOF"},
		{"not JSON", "{\n\"links\": [}\n", "line 2: invalid character"},
		{"wrong type", "{\n\n\"links\": 7}", "line 3: json: cannot unmarshal number"},
		{"unknown key", `{"link": []}`, `unknown field "link"`},
		{"nearly a key of a route", route(`{"dst": "default", "dve": "eth0", "dev": "eth0"}`), `unknown field "routes[0].dve": is "dev" meant?`},
		{"nearly a key of a link", link(`{"adrs": []}`), `unknown field "links[0].adrs": is "addrs" meant?`},
		{"nearly a key of a rule", `{"rules": [{"pirority": 1, "table": 1}]}`, `unknown field "rules[0].pirority": is "priority" meant?`},
		{"nearly a key of a GID", `{"rdma": [{"name": "mlx5_0", "ports": [{"number": 1, "gids": [{"indx": 1, "addr": "::1"}]}]}]}`, `unknown field "rdma[0].ports[0].gids[0].indx"`},
		{"route without a link", route(`{"dst": "default", "device": "eth0"}`), `route to "default": has no "dev"`},
		{"rule without a table", `{"rules": [{"priority": 7, "from": "10.0.0.1"}]}`, "rule 7: table 0 is not between 1"},
		{"rule from nowhere", `{"rules": [{"priority": 7, "from": "there", "table": 1}]}`, `rule 7: from "there"`},
		{"rule with a named table", `{"rules": [{"priority": 7, "from": "all", "table": "storage"}]}`, `routing table "storage" is not a number`},
		{"rule of two families", `{"rules": [{"priority": 7, "from": "10.0.0.1", "to": "fd00::/8", "table": 1}]}`, "two families"},
		{"rule from a host in a net", `{"rules": [{"priority": 7, "from": "10.0.0.1/24", "table": 1}]}`, "is not a network"},
		{"route of a bad table", route(`{"dst": "default", "dev": "eth0", "table": -1}`), `routing table "-1"`},
		{"RDMA device twice", `{"rdma": [{"name": "mlx5_0"}, {"name": "mlx5_0"}]}`, `RDMA device "mlx5_0": is listed twice`},
		{"RDMA port 0", `{"rdma": [{"name": "mlx5_0", "ports": [{"number": 0}]}]}`, "port 0"},
		{"GID of IPv4", `{"rdma": [{"name": "mlx5_0", "ports": [{"number": 1, "gids": [{"index": 0, "addr": "10.0.0.1"}]}]}]}`, "GID 0 (10.0.0.1) is not an IPv6 address"},
		{"GPU path", `{"gpus": [{"pci": "0000:01:00.0", "path": "a b"}]}`, `GPU "0000:01:00.0": path "a b"`},
		{"memory node", link(`{"numa": -1}`), "memory node -1"},
		{"more than one", "{}\n{}", "line 2: more text after its end"},
		{"unknown flag", link(`{"flags": "up,fast"}`), `unknown interface flag "fast"`},
		{"no name", link(`{"name": ""}`), "is not an interface name"},
		{"long name", link(`{"name": "abcdefghijklmnop"}`), "longer than 15 bytes"},
		{"name with a slash", link(`{"name": "a/b"}`), "slash"},
		{"name with a line end", link(`{"name": "a\nb"}`), "cannot be printed"},
		{"name with an escape", link(`{"name": "a\u001b[1m"}`), "cannot be printed"},
		{"kind with a space", link(`{"kind": "a b"}`), "space"},
		{"host with a line end", `{"host": "a\nb"}`, "cannot be printed"},
		{"index", link(`{"index": 0}`), "index 0 is not between 1"},
		{"mtu", link(`{"mtu": -1}`), "mtu -1"},
		{"speed", link(`{"speed": -2}`), "speed -2"},
		{"state", link(`{"oper": "UP"}`), `state "UP" is not one of up`},
		{"master", link(`{"master": "br0"}`), `is part of "br0", which is not among the links`},
		{"parent", link(`{"parent": "eth/9"}`), `parent "eth/9": has a slash`},
		{"address", link(`{"addrs": ["10.0.0.1"]}`), "no '/'"},
		{"address 0", link(`{"addrs": ["0.0.0.0/0"]}`), "not one that a host can have"},
		{"mapped address", link(`{"addrs": ["::ffff:1.2.3.4/120"]}`), "not one that a host can have"},
		{"name twice", `{"links": [` + loopback + `,` + strings.Replace(loopback, `"index": 1`, `"index": 2`, 1) + `]}`, "listed twice"},
		{"index twice", `{"links": [` + loopback + `,` + strings.Replace(loopback, `"lo"`, `"l2"`, 1) + `]}`, `index 1 is already that of "lo"`},
		{"route of an unknown link", route(`{"dst": "default", "dev": "eth1"}`), `leaves by "eth1", which is not among the links`},
		{"route to a host in a net", route(`{"dst": "10.0.0.1/24", "dev": "eth0"}`), "is not a network"},
		{"route to nowhere", route(`{"dst": "there", "dev": "eth0"}`), `route to "there"`},
		{"gateway", route(`{"dst": "default", "dev": "eth0", "via": "router"}`), `route to "default"`},
		{"gateway of another family", route(`{"dst": "fd00::/64", "dev": "eth0", "via": "10.0.0.1"}`), "gateway 10.0.0.1 is of another family"},
		{"source of another family", route(`{"dst": "10.0.0.0/8", "dev": "eth0", "src": "fd00::1"}`), "source fd00::1 is of another family"},
		{"metric", route(`{"dst": "default", "dev": "eth0", "metric": -1}`), "metric -1"},
		{"too large", strings.Repeat(" ", maxInventoryBytes+1), "larger than"},
		{"too many links", `{"links": [` + strings.Repeat(`{},`, maxLinks) + `{}]}`, "has 4097 links, more than 4096"},
		{"too many addresses", link(`{"addrs": [` + strings.Repeat(`"10.0.0.1/8",`, maxAddrs) + `"10.0.0.1/8"]}`), "has 16385 addresses"},
		{"too many routes", route(strings.Repeat(`{"dst":"default","dev":"eth0"},`, maxRoutes) + `{"dst":"default","dev":"eth0"}`), "has 16385 routes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ReadInventory(strings.NewReader(tt.text))
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "reading network inventory: ") {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// ReadInventory accepts the spellings of other tools.
func TestReadInventoryTakes(t *testing.T) {
	inv := parse(t, `{"host": "n1", "kernel": "6.8", "links": [
		{"index": 2, "name": "net1", "kind": "macvlan", "arphrd": "ether", "flags": "broadcast,multicast,up,running,lower_up", "oper": "up", "mtu": 1500,
		 "speed": -1, "parent": "ens1f0", "mac": "02:00:00:00:00:01", "addrs": ["10.0.0.1/24"]},
		{"index": 3, "name": "vlan7", "kind": "vlan", "flags": "up,no-carrier", "oper": "lowerlayerdown", "mtu": 1500}],
		"routes": [{"dst": "default", "dev": "net1", "via": "10.0.0.254", "table": "main"}],
		"rules": [{"priority": 9, "from": "all", "table": "main"}]}`)
	if l := inv.Links[0]; l.Flags != Up|Running|LowerUp || l.Parent != "ens1f0" {
		t.Errorf("link %+v", l)
	}
	if l := inv.Links[1]; l.Flags != Up || l.Oper != "lower-layer-down" {
		t.Errorf("link %+v", l)
	}
	if r := inv.Routes[0]; r.Table != 0 {
		t.Errorf("route %+v", r)
	}
}

func TestIsNearly(t *testing.T) {
	for _, tt := range []struct {
		key, known string
		want       bool
	}{
		{"peer", "peers", true}, {"preers", "peers", true}, {"peesr", "peers", true}, {"addresses", "addrs", false}, {"adrs", "addrs", true},
		{"dve", "dev", true}, {"device", "dev", false}, {"mac", "mtu", false}, {"route", "routes", true}, {"kernel", "rules", false}, {"interfaces", "links", false},
	} {
		if got := isNearly(tt.key, tt.known); got != tt.want {
			t.Errorf("%q for %q: %t", tt.key, tt.known, got)
		}
	}
}

// ReadCases reads a single case, a list, and a plain inventory.
func TestReadCases(t *testing.T) {
	data, err := os.ReadFile("testdata/netif_cases.json")
	if err != nil {
		t.Fatal(err)
	}
	cases, isList, err := ReadCases(bytes.NewReader(data))
	if err != nil || !isList || len(cases) != 20 || cases[0].ID != "01-docker-veth-host" || cases[0].Peers[0] != addr("172.31.9.4") {
		t.Errorf("%d cases, %v", len(cases), err)
	}
	cases, isList, err = ReadCases(strings.NewReader(`{"id": "a", "links": [` + loopback + `], "nccl_conf": [{"name": "NCCL_DEBUG", "value": "INFO", "file": "/etc/nccl.conf", "line": 1}]}`))
	if err != nil || isList || cases[0].Links[0].Name != "lo" || cases[0].Settings[0].Value != "INFO" {
		t.Errorf("%+v, %v", cases, err)
	}
	for text, want := range map[string]string{
		``: "line 1", `[`: "line 1", `{"peers": ["n2"]}`: "ParseAddr", `{"peers": [""]}`: "a peer has no address",
		`{"peeers": []}`: `unknown field "peeers"`, `[{}, {"links": [{"indx": 1}]}]`: `unknown field "[1].links[0].indx"`,
		`[{"id": "a"}, {"id": "a"}]`: `case 1 ("a"): its id is that of an earlier one`, `{"id": "a b"}`: "id: has a space", `[] []`: "more text after its end",
	} {
		if _, _, err := ReadCases(strings.NewReader(text)); err == nil || !strings.HasPrefix(err.Error(), "reading network inventory: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}

func TestRouteText(t *testing.T) {
	tests := []struct {
		text string
		want Route
		back string // if different from text
	}{
		{`{"dst":"default","dev":"eth0","via":"10.0.0.1","src":"","metric":100}`,
			Route{Dst: mustPrefix("0.0.0.0/0"), Dev: "eth0", Via: addr("10.0.0.1"), Metric: 100}, ""},
		{`{"dst":"default","dev":"lan0","via":"fe80::1(via inet6)","src":"192.0.2.7","metric":0}`,
			Route{Dst: mustPrefix("0.0.0.0/0"), Dev: "lan0", Via: addr("fe80::1"), Src: addr("192.0.2.7")}, ""},
		{`{"dst":"default","dev":"eth0","via":"fe80::1","src":"","metric":0}`,
			Route{Dst: mustPrefix("::/0"), Dev: "eth0", Via: addr("fe80::1")},
			`{"dst":"::/0","dev":"eth0","via":"fe80::1","src":"","metric":0}`},
		{`{"dst":"10.0.0.0/8","dev":"","via":"","src":"","metric":0}`, Route{Dst: mustPrefix("10.0.0.0/8")}, ""},
	}
	for _, tt := range tests {
		var got Route
		if err := json.Unmarshal([]byte(tt.text), &got); err != nil {
			t.Fatal(err)
		}
		if got != tt.want {
			t.Errorf("%s: read %+v, want %+v", tt.text, got, tt.want)
		}
		back, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if want := cmp.Or(tt.back, tt.text); string(back) != want {
			t.Errorf("wrote %s, want %s", back, want)
		}
	}
}

// Every accepted inventory is written back unchanged, and Choose returns.
func FuzzReadInventory(f *testing.F) {
	for _, c := range loadCases(f) {
		f.Add(c.text)
	}
	f.Add([]byte(`{"links": [{"index":1,"name":"a","oper":"up","flags":"up,running","master":"b","kind":"vlan","parent":"b"},
		{"index":2,"name":"b","oper":"up","flags":"up,running","master":"a","addrs":["10.0.0.1/8"]}]}`))
	f.Add([]byte(`{"routes":[{"dst":"::/0","dev":"","via":"fe80::1","metric":4294967295}]}`))
	f.Add([]byte(`{"links":[{"index":2,"name":"a","oper":"up","flags":"up,running","addrs":["10.0.0.1/8"]}],
		"routes":[{"dst":"default","dev":"a","table":7},{"dst":"10.0.0.0/8","dev":"","throw":true,"table":8}],
		"rules":[{"priority":1,"from":"10.0.0.1","table":7},{"priority":2,"from":"all","table":"8","not":true,"mark":3,"suppress":0}],
		"rdma":[{"name":"mlx5_0","ports":[{"number":1,"gids":[{"index":3,"addr":"::ffff:10.0.0.1"}]}]}],"gpus":[{"pci":"0000:01:00.0"}]}`))
	peers := []netip.Addr{addr("10.0.0.7"), addr("172.31.9.4")}
	f.Fuzz(func(t *testing.T, data []byte) {
		inv, err := ReadInventory(bytes.NewReader(data))
		if err != nil {
			return
		}
		text, err := json.Marshal(inv)
		if err != nil {
			t.Fatalf("writing %+v: %v", inv, err)
		}
		again, err := ReadInventory(bytes.NewReader(text))
		if err != nil {
			t.Fatalf("reading back %s: %v", text, err)
		}
		if !reflect.DeepEqual(inv, again) {
			t.Fatalf("%+v became %+v", inv, again)
		}
		for _, req := range []Request{{}, {Family: IPv6}, {Interface: "b"}} {
			for _, to := range [][]netip.Addr{nil, peers[:1], peers} {
				if c, err := Choose(inv, to, req); err == nil && (c.Interface == "" || !c.Addr.IsValid()) {
					t.Fatalf("chose nothing: %+v", c)
				}
			}
			other := inv
			other.Host = "other"
			if _, err := Agree([]Inventory{inv, other}, req); err == nil {
				t.Fatal("agreed, though both hosts have the same addresses")
			}
		}
	})
}
