package nccl

import (
	"encoding/json"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/netif"
)

func choice(name, addr string) netif.Choice {
	a := netip.MustParseAddr(addr)
	c := netif.Choice{Interface: name, Addr: a, Family: netif.IPv4, Why: "10.20.0.0/24 reaches all 4 hosts"}
	if a.Is6() {
		c.Family = netif.IPv6
	}
	return c
}

func lookupIn(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, set := env[name]; return v, set }
}

// environment returns the result of [Plan] for only a choice, for NCCL, Gloo, and TensorPipe.
func environment(c netif.Choice, lookup func(string) (string, bool), site ...Setting) (vars []Var, notes []string) {
	p := planner{Facts: Facts{Choice: c, Lookup: lookup, Conf: site}}
	p.env.inherited = map[string]bool{}
	p.setSockets()
	p.setPlainName(glooInterface, "Gloo")
	p.setPlainName(tpInterface, "TensorPipe")
	return p.env.ToSet(), append(p.env.Warnings, p.env.Notes...)
}

// TestEnvironment checks the variables and notes of a plan for combinations of the chosen
// interface, the user's environment, and the site's nccl.conf.
func TestEnvironment(t *testing.T) {
	shadowed := choice("lo", "192.0.2.77")
	shadowed.Shadowed = true
	tests := []struct {
		name   string
		choice netif.Choice
		env    map[string]string
		site   string // text of /etc/nccl.conf
		want   []string
		notes  []string // one substring each
	}{
		{
			name: "nothing set", choice: choice("hsn0", "10.20.0.1"),
			want: []string{"NCCL_SOCKET_IFNAME==hsn0", "GLOO_SOCKET_IFNAME=hsn0", "TP_SOCKET_IFNAME=hsn0"},
		},
		{
			name: "loopback", choice: choice("lo", "127.0.0.1"),
			want: []string{"NCCL_SOCKET_IFNAME==lo", "GLOO_SOCKET_IFNAME=lo", "TP_SOCKET_IFNAME=lo"},
		},
		{
			name: "IPv6", choice: choice("hsn0", "fd00::1"),
			want:  []string{"NCCL_SOCKET_IFNAME==hsn0", "NCCL_SOCKET_FAMILY=AF_INET6", "GLOO_SOCKET_IFNAME=hsn0", "TP_SOCKET_IFNAME=hsn0"},
			notes: []string{"Gloo uses the first address of hsn0", "TensorPipe uses the first address"},
		},
		{
			name: "IPv6 loopback", choice: choice("lo", "::1"),
			want:  []string{"NCCL_SOCKET_FAMILY=AF_INET6", "GLOO_SOCKET_IFNAME=lo", "TP_SOCKET_IFNAME=lo"},
			notes: []string{"NCCL_SOCKET_IFNAME is not set: NCCL does not use the IPv6 loopback", "Gloo uses", "TensorPipe uses"},
		},
		{
			name: "set by the user, in accord", choice: choice("hsn0", "10.20.0.1"),
			env: map[string]string{"NCCL_SOCKET_IFNAME": "hsn", "GLOO_SOCKET_IFNAME": "hsn0,hsn1", "TP_SOCKET_IFNAME": "hsn0", "NCCL_SOCKET_FAMILY": "AF_INET"},
		},
		{
			name: "set by the user, in contradiction", choice: choice("hsn0", "10.20.0.1"),
			env:  map[string]string{"NCCL_SOCKET_IFNAME": "^docker,hsn", "GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_FAMILY": "AF_INET6"},
			want: []string{"TP_SOCKET_IFNAME=hsn0"},
			notes: []string{
				`NCCL_SOCKET_IFNAME="^docker,hsn" (from the environment) is unchanged, but it does not allow hsn0 (10.20.0.1), which was chosen: 10.20.0.0/24 reaches all 4 hosts`,
				`NCCL_SOCKET_FAMILY="AF_INET6" (from the environment) is unchanged, but the chosen address 10.20.0.1 is AF_INET`,
				`GLOO_SOCKET_IFNAME="eth0" (from the environment) is unchanged, but it does not name hsn0 (10.20.0.1)`,
			},
		},
		{
			name: "NCCL's grammar given to Gloo", choice: choice("hsn0", "10.20.0.1"),
			env:   map[string]string{"GLOO_SOCKET_IFNAME": "=hsn0", "TP_SOCKET_IFNAME": "^lo,docker"},
			want:  []string{"NCCL_SOCKET_IFNAME==hsn0"},
			notes: []string{"but Gloo accepts only plain names", "but TensorPipe accepts only plain names"},
		},
		{
			name: "set by the site", choice: choice("hsn0", "10.20.0.1"),
			site: "# ours\nNCCL_SOCKET_IFNAME=ib0\nNCCL_SOCKET_IFNAME=hsn0\nGLOO_SOCKET_IFNAME=ib0\n",
			want: []string{"GLOO_SOCKET_IFNAME=hsn0", "TP_SOCKET_IFNAME=hsn0"},
			notes: []string{
				`NCCL_SOCKET_IFNAME="ib0" (from /etc/nccl.conf:2) is unchanged, but it does not allow hsn0`,
			},
		},
		{
			name: "the user before the site", choice: choice("hsn0", "10.20.0.1"),
			env:  map[string]string{"NCCL_SOCKET_IFNAME": "=hsn0"},
			site: "NCCL_SOCKET_IFNAME=ib0\n",
			want: []string{"GLOO_SOCKET_IFNAME=hsn0", "TP_SOCKET_IFNAME=hsn0"},
		},
		{
			name: "a value that came from Windows", choice: choice("hsn0", "10.20.0.1"),
			site:  "NCCL_SOCKET_IFNAME==hsn0\r\n",
			want:  []string{"GLOO_SOCKET_IFNAME=hsn0", "TP_SOCKET_IFNAME=hsn0"},
			notes: []string{`NCCL_SOCKET_IFNAME="=hsn0\r" (from /etc/nccl.conf:1) is unchanged, but it does not allow hsn0`},
		},
		{
			name: "values that are ignored", choice: choice("hsn0", "10.20.0.1"),
			env:   map[string]string{"NCCL_SOCKET_IFNAME": "=", "GLOO_SOCKET_IFNAME": "", "NCCL_SOCKET_FAMILY": ""},
			want:  []string{"NCCL_SOCKET_IFNAME==hsn0", "GLOO_SOCKET_IFNAME=hsn0", "TP_SOCKET_IFNAME=hsn0"},
			notes: []string{`NCCL_SOCKET_IFNAME="=" (from the environment) is replaced: NCCL ignores values of fewer than two characters`},
		},
		{
			name: "an empty value of NCCL_SOCKET_IFNAME", choice: choice("hsn0", "10.20.0.1"),
			env:   map[string]string{"NCCL_SOCKET_IFNAME": ""},
			want:  []string{"NCCL_SOCKET_IFNAME==hsn0", "GLOO_SOCKET_IFNAME=hsn0", "TP_SOCKET_IFNAME=hsn0"},
			notes: []string{`NCCL_SOCKET_IFNAME="" (from the environment) is replaced: NCCL ignores values of fewer than two characters`},
		},
		{
			name: "an address that its interface's name does not lead to", choice: shadowed,
			notes: []string{
				"NCCL_SOCKET_IFNAME is not set: the name lo selects its first address, not 192.0.2.77; put 192.0.2.77 on a separate interface",
				"GLOO_SOCKET_IFNAME is not set", "TP_SOCKET_IFNAME is not set",
			},
		},
		{
			name: "a name with a comma", choice: choice("a,b", "10.20.0.1"),
			notes: []string{`NCCL_SOCKET_IFNAME is not set: the name "a,b" contains a comma`, "GLOO_SOCKET_IFNAME is not set", "TP_SOCKET_IFNAME is not set"},
		},
		{
			name: "NCCL_COMM_ID", choice: choice("hsn0", "10.20.0.1"),
			env:   map[string]string{"NCCL_COMM_ID": "10.20.0.1:4000"},
			want:  []string{"NCCL_SOCKET_IFNAME==hsn0", "GLOO_SOCKET_IFNAME=hsn0", "TP_SOCKET_IFNAME=hsn0"},
			notes: []string{`NCCL_COMM_ID="10.20.0.1:4000" (from the environment) is unchanged, but NCCL then ignores NCCL_SOCKET_IFNAME`},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			vars, notes := environment(tt.choice, lookupIn(tt.env), parseConf("/etc/nccl.conf", []byte(tt.site))...)
			var got []string
			for _, v := range vars {
				got = append(got, v.Name+"="+v.Value)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("variables %q, want %q", got, tt.want)
			}
			if len(notes) != len(tt.notes) {
				t.Fatalf("notes %q, want %q", notes, tt.notes)
			}
			for i := range notes {
				if !strings.Contains(notes[i], tt.notes[i]) {
					t.Errorf("note %q, want %q", notes[i], tt.notes[i])
				}
			}
		})
	}
}

// TestRealHosts checks the plan for recorded inventories of real hosts: the interfaces for NCCL
// and Gloo, and the adapters.
func TestRealHosts(t *testing.T) {
	data, err := os.ReadFile("../netif/testdata/netif_cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		ID     string          `json:"id"`
		Links  json.RawMessage `json:"links"`
		Routes json.RawMessage `json:"routes"`
		Peers  []netip.Addr    `json:"peers"`
		Want   struct {
			NCCL string `json:"nccl"`
			Gloo string `json:"gloo"`
			HCA  string `json:"ib_hca"`
		} `json:"want"`
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	for _, tt := range cases {
		text, err := json.Marshal(map[string]any{"links": tt.Links, "routes": tt.Routes})
		if err != nil {
			t.Fatal(err)
		}
		read, _, err := netif.ReadCases(strings.NewReader(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		inv := read[0].Inventory
		c, err := netif.Choose(inv, tt.Peers, netif.Request{})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, v := range Plan(Facts{Choice: c, Inventory: inv}).Vars {
			got[v.Name] = v.Value
		}
		if have, want := strings.TrimPrefix(got[ibHCA], "="), strings.TrimPrefix(tt.Want.HCA, "="); have != want {
			t.Errorf("%s: adapters %q, want %q", tt.ID, have, want)
		}
		if got[ncclInterface] != tt.Want.NCCL || got[glooInterface] != tt.Want.Gloo {
			t.Errorf("%s: NCCL %q, Gloo %q, want %q, %q", tt.ID, got[ncclInterface], got[glooInterface], tt.Want.NCCL, tt.Want.Gloo)
		}
	}
}
