package netif

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

// TestReadCasesRejects checks the errors for invalid and unknown fields of an inventory.
func TestReadCasesRejects(t *testing.T) {
	link := func(fields string) string {
		return `{"links": [{"index": 2, "oper": "up", "flags": "up", ` + fields + `}]}`
	}
	route := func(fields string) string {
		return `{"links": [{"index": 2, "name": "eth0", "oper": "up", "flags": "up"}], "routes": [{` + fields + `}]}`
	}
	tests := []struct{ name, text, want string }{
		{"empty", ``, "EOF"},
		{"invalid JSON", `{"links": [}`, "invalid character"},
		{"wrong type", `{"links": 7}`, "cannot unmarshal number"},
		{"text after the value", "{}\n{}", "unexpected text"},
		{"unknown field", `{"peeers": ["10.0.0.1"]}`, `unknown field "peeers"`},
		{"unknown field of a link", link(`"name": "eth0", "adrs": []`), `unknown field "adrs"`},
		{"unknown field of a route", route(`"dst": "default", "device": "eth0"`), `unknown field "device"`},
		{"unknown field of a rule", `{"rules": [{"pirority": 1, "table": 1}]}`, `unknown field "pirority"`},
		{"unknown flag", link(`"name": "eth0", "flags": "up,fast"`), `unknown interface flag "fast"`},
		{"missing name", link(`"mtu": 1500`), `link "": invalid interface name`},
		{"long name", link(`"name": "abcdefghijklmnop"`), "longer than 15 bytes"},
		{"long path", link(`"name": "eth0", "path": "` + strings.Repeat("a", maxDevicePath+1) + `"`), "path of a device with 4097 bytes"},
		{"long path of an adapter", `{"rdma": [{"name": "mlx5_0", "path": "` + strings.Repeat("a", maxDevicePath+1) + `"}]}`, "path of a device"},
		{"long path of a GPU", `{"gpus": [{"pci": "0000:01:00.0", "path": "` + strings.Repeat("a", maxDevicePath+1) + `"}]}`, "path of a device"},
		{"name with a slash", link(`"name": "a/b"`), "invalid interface name"},
		{"name with a line end", link(`"name": "a\nb"`), "invalid interface name"},
		{"name with an escape sequence", link(`"name": "a\u001b[1m"`), "invalid interface name"},
		{"duplicate name", `{"links": [` + loopback + `,` + loopback + `]}`, "duplicate name"},
		{"address without a prefix length", link(`"name": "eth0", "addrs": ["10.0.0.1"]`), "no '/'"},
		{"address 0", link(`"name": "eth0", "addrs": ["0.0.0.0/0"]`), "invalid address 0.0.0.0/0"},
		{"mapped address", link(`"name": "eth0", "addrs": ["::ffff:1.2.3.4/120"]`), "invalid address"},
		{"route without a device", route(`"dst": "default"`), `missing field "dev"`},
		{"route by an unknown link", route(`"dst": "default", "dev": "eth1"`), `no link "eth1"`},
		{"route to a host in a subnet", route(`"dst": "10.0.0.1/24", "dev": "eth0"`), "invalid subnet"},
		{"invalid destination", route(`"dst": "there", "dev": "eth0"`), `route to "there"`},
		{"invalid gateway", route(`"dst": "default", "dev": "eth0", "via": "router"`), `route to "default"`},
		{"peer without an address", `{"peers": [""]}`, "empty peer address"},
		{"duplicate ID", `[{"id": "a"}, {"id": "a"}]`, `case 1 ("a"): duplicate id`},
		{"too large", strings.Repeat(" ", maxCasesBytes+1), "larger than 64 MiB"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, _, err := ReadCases(strings.NewReader(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// TestReadCases checks that ReadCases reads a single case, a list, and a plain inventory.
func TestReadCases(t *testing.T) {
	single := `{"id": "a", "links": [` + loopback + `], "peers": ["10.0.0.1"], "nccl_conf": [{"name": "NCCL_DEBUG", "value": "INFO", "file": "/etc/nccl.conf", "line": 1}]}`
	cases, isList, err := ReadCases(strings.NewReader(single))
	if err != nil || isList || cases[0].Links[0].Name != "lo" || cases[0].Settings[0].Value != "INFO" || cases[0].Peers[0] != addr("10.0.0.1") {
		t.Errorf("got %+v, %t, %v", cases, isList, err)
	}
	cases, isList, err = ReadCases(strings.NewReader(" \n[" + single + `, {"id": "b"}]`))
	if err != nil || !isList || len(cases) != 2 || cases[1].ID != "b" {
		t.Errorf("got %+v, %t, %v", cases, isList, err)
	}
	if inv := parse(t, `{"host": "n1", "links": [`+loopback+`]}`); inv.Host != "n1" || inv.Links[0].Flags != Up|Running {
		t.Errorf("got %+v", inv)
	}
}

// TestRouteText checks that routes in JSON are read and written unchanged.
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

// TestReadCasesLimitsWork checks that a file that the user received cannot make Choose run for hours, and
// that a large host is accepted.
func TestReadCasesLimitsWork(t *testing.T) {
	const (
		link  = `{"index":2,"name":"e%d","oper":"up","flags":"up,running","addrs":["10.0.%[1]d.1/32"]}`
		rule  = `{"priority":%d,"from":"10.0.0.0/8","table":7}`
		peers = `"11.0.0.1"`

		hcaLink  = `{"index":2,"name":"h%d","hca":"mlx5_0","oper":"up","flags":"up,running","addrs":["10.1.0.1/32"]}`
		bondPort = `{"index":2,"name":"p%d","hca":"mlx5_%[1]d","master":"bond0","oper":"up","flags":"up,running"},{"index":3,"name":"v%[1]d","kind":"vlan","parent":"bond0","oper":"up","flags":"up,running"}`
		port     = `{"number":%d}`
		adapter  = `{"name":"mlx5_%d","ports":[{"number":1,"gids":[{"index":3,"addr":"::ffff:10.0.0.1","type":"RoCE v2","link":"e%[1]d"}]}]}`
	)
	list := func(n int, format string) string {
		all := make([]string, n)
		for i := range all {
			if all[i] = format; strings.Contains(format, "%") {
				all[i] = fmt.Sprintf(format, i)
			}
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	host := func(links, rules, n int) string {
		return `{"host":"a","links":` + list(links, link) + `,"rules":` + list(rules, rule) + `,"peers":` + list(n, peers) + `}`
	}
	for _, tt := range []struct {
		name, text string
		rejected   bool
	}{
		{"large host", host(50, 400, 16384), false},
		{"rules", host(200, 4000, 4000), true},
		{"links", host(30_000, 0, 0), true},
		{"many hosts", "[" + strings.Repeat(host(50, 400, 16384)+",", 9) + host(1, 1, 1) + "]", true},
		{"many equal routes", `{"links":` + list(1, link) + `,"routes":` + list(50_000, `{"dst":"default","dev":"e0"}`) + `,"peers":` + list(1, peers) + `}`, true},
		{"equal routes", `{"links":` + list(8, link) + `,"routes":` + list(8, `{"dst":"default","dev":"e%d"}`) + `,"rules":` + list(20, rule) + `,"peers":` + list(16384, peers) + `}`, false},
		{"many ports and links of one adapter", `{"links":` + list(2000, hcaLink) + `,"rdma":[{"name":"mlx5_0","ports":` + list(2000, port) + `}]}`, true},
		{"many VLANs on a bond of many adapters", `{"links":[{"index":1,"name":"bond0","kind":"bond","oper":"up","flags":"up,running"},` + list(1500, bondPort)[1:] + `}`, true},
		{"many routes of many ports", `{"links":` + list(200, hcaLink) + `,"routes":` + list(20_000, `{"dst":"10.%d.0.0/32","dev":"h0"}`) + `,"rdma":[{"name":"mlx5_0","ports":` + list(200, port) + `}]}`, true},
		{"virtual functions", `{"links":` + list(256, link) + `,"routes":` + list(1000, `{"dst":"default","dev":"e0","metric":%d}`) + `,"rdma":` + list(256, adapter) + `}`, false},
	} {
		if _, _, err := ReadCases(strings.NewReader(tt.text)); (err != nil) != tt.rejected {
			t.Errorf("%s: got %v, want an error: %t", tt.name, err, tt.rejected)
		}
	}
}

// FuzzChoose checks that every accepted inventory is written back unchanged, and that Choose
// returns.
func FuzzChoose(f *testing.F) {
	for _, c := range loadCases(f) {
		f.Add(c.text)
	}
	f.Add([]byte(`{"links": [{"index":1,"name":"a","oper":"up","flags":"up,running","master":"b","kind":"vlan","parent":"b"},
		{"index":2,"name":"b","oper":"up","flags":"up,running","master":"a","addrs":["10.0.0.1/8"]}]}`))
	f.Add([]byte(`{"routes":[{"dst":"::/0","dev":"","via":"fe80::1","metric":4294967295}]}`))
	f.Add([]byte(`{"links":[{"index":2,"name":"a","oper":"up","flags":"up,running","addrs":["10.0.0.1/8"]}],
		"routes":[{"dst":"default","dev":"a","table":7},{"dst":"10.0.0.0/8","dev":"","throw":true,"table":8}],
		"rules":[{"priority":1,"from":"10.0.0.1/32","table":7},{"priority":2,"table":8,"not":true,"mark":3,"suppress":0}],
		"rdma":[{"name":"mlx5_0","ports":[{"number":1,"gids":[{"index":3,"addr":"::ffff:10.0.0.1"}]}]}],"gpus":[{"pci":"0000:01:00.0"}]}`))
	peers := []netip.Addr{addr("10.0.0.7"), addr("172.31.9.4")}
	f.Fuzz(func(t *testing.T, data []byte) {
		cases, isList, err := ReadCases(bytes.NewReader(data))
		if err != nil || isList {
			return
		}
		inv := cases[0].Inventory
		text, err := json.Marshal(inv)
		if err != nil {
			t.Fatalf("writing %+v: %v", inv, err)
		}
		again, _, err := ReadCases(bytes.NewReader(text))
		if err != nil {
			t.Fatalf("reading back %s: %v", text, err)
		}
		if !reflect.DeepEqual(inv, again[0].Inventory) {
			t.Fatalf("%+v became %+v", inv, again[0].Inventory)
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

// FuzzReadCases checks that any accepted inventory is written and read unchanged.
func FuzzReadCases(f *testing.F) {
	for _, c := range moreCases(f) { // one by one: whole files are too large to mutate
		f.Add(c.text)
	}
	f.Add([]byte(`[{"id":"a","rules":[{"priority":1,"table":254}]},{"id":"b","peers":["10.0.0.1"]}]`))
	f.Add([]byte(`{"id":"a","links":null,"peers":["::1"],"nccl_conf":[{"name":"A","value":"b","file":"/c","line":1}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		cases, isList, err := ReadCases(bytes.NewReader(data))
		if err != nil {
			return
		}
		var text []byte
		if isList {
			text, err = json.Marshal(cases)
		} else {
			text, err = json.Marshal(cases[0])
		}
		if err != nil {
			t.Fatalf("writing %+v: %v", cases, err)
		}
		again, _, err := ReadCases(bytes.NewReader(text))
		if err != nil {
			t.Fatalf("reading back %s: %v", text, err)
		}
		for i := range cases {
			a, b := cases[i], again[i]
			if a.ID != b.ID || !reflect.DeepEqual(a.Inventory, b.Inventory) || !reflect.DeepEqual(a.Peers, b.Peers) || !reflect.DeepEqual(a.Settings, b.Settings) {
				t.Fatalf("%+v became %+v", a, b)
			}
		}
	})
}
