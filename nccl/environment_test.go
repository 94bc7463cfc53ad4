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

func TestEnvironment(t *testing.T) {
	shadowed := choice("lo", "192.0.2.77")
	shadowed.Shadowed = true
	tests := []struct {
		name   string
		choice netif.Choice
		env    map[string]string
		site   string // text of /etc/nccl.conf
		want   []string
		notes  []string // a part of each
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
			want:  []string{"NCCL_SOCKET_IFNAME==hsn0", "GLOO_SOCKET_IFNAME=hsn0", "TP_SOCKET_IFNAME=hsn0", "NCCL_SOCKET_FAMILY=AF_INET6"},
			notes: []string{"Gloo takes the first address of hsn0, whatever its family", "TensorPipe takes the first address"},
		},
		{
			name: "IPv6 loopback", choice: choice("lo", "::1"),
			want:  []string{"GLOO_SOCKET_IFNAME=lo", "TP_SOCKET_IFNAME=lo", "NCCL_SOCKET_FAMILY=AF_INET6"},
			notes: []string{"NCCL_SOCKET_IFNAME is not set: NCCL does not use the IPv6 loopback", "Gloo takes", "TensorPipe takes"},
		},
		{
			name: "set by the user, in accord", choice: choice("hsn0", "10.20.0.1"),
			env: map[string]string{"NCCL_SOCKET_IFNAME": "hsn", "GLOO_SOCKET_IFNAME": "hsn0,hsn1", "TP_SOCKET_IFNAME": "hsn0", "NCCL_SOCKET_FAMILY": "AF_INET"},
			notes: []string{
				`NCCL_SOCKET_IFNAME="hsn" (from the environment) is kept; it allows hsn0`,
				`GLOO_SOCKET_IFNAME="hsn0,hsn1" (from the environment) is kept; it names hsn0`,
				`TP_SOCKET_IFNAME="hsn0" (from the environment) is kept; it names hsn0`,
				`NCCL_SOCKET_FAMILY="AF_INET" (from the environment) is kept; it is the family of 10.20.0.1`,
			},
		},
		{
			name: "set by the user, in contradiction", choice: choice("hsn0", "10.20.0.1"),
			env:  map[string]string{"NCCL_SOCKET_IFNAME": "^docker,hsn", "GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_FAMILY": "AF_INET6"},
			want: []string{"TP_SOCKET_IFNAME=hsn0"},
			notes: []string{
				`NCCL_SOCKET_IFNAME="^docker,hsn" (from the environment) is kept; but it does not allow hsn0 (10.20.0.1), which was chosen: 10.20.0.0/24 reaches all 4 hosts`,
				`GLOO_SOCKET_IFNAME="eth0" (from the environment) is kept; but it does not name hsn0 (10.20.0.1)`,
				`NCCL_SOCKET_FAMILY="AF_INET6" (from the environment) is kept; but 10.20.0.1, which was chosen, is AF_INET`,
			},
		},
		{
			name: "NCCL's grammar given to Gloo", choice: choice("hsn0", "10.20.0.1"),
			env:   map[string]string{"GLOO_SOCKET_IFNAME": "=hsn0", "TP_SOCKET_IFNAME": "^lo,docker"},
			want:  []string{"NCCL_SOCKET_IFNAME==hsn0"},
			notes: []string{"but Gloo knows plain names only", "but TensorPipe knows plain names only"},
		},
		{
			name: "set by the site", choice: choice("hsn0", "10.20.0.1"),
			site: "# ours\nNCCL_SOCKET_IFNAME=ib0\nNCCL_SOCKET_IFNAME=hsn0\nGLOO_SOCKET_IFNAME=ib0\n",
			want: []string{"GLOO_SOCKET_IFNAME=hsn0", "TP_SOCKET_IFNAME=hsn0"},
			notes: []string{
				`NCCL_SOCKET_IFNAME="ib0" (from /etc/nccl.conf:2) is kept; but it does not allow hsn0`,
			},
		},
		{
			name: "the user before the site", choice: choice("hsn0", "10.20.0.1"),
			env:   map[string]string{"NCCL_SOCKET_IFNAME": "=hsn0"},
			site:  "NCCL_SOCKET_IFNAME=ib0\n",
			want:  []string{"GLOO_SOCKET_IFNAME=hsn0", "TP_SOCKET_IFNAME=hsn0"},
			notes: []string{`NCCL_SOCKET_IFNAME="=hsn0" (from the environment) is kept; it allows hsn0`},
		},
		{
			name: "a value that came from Windows", choice: choice("hsn0", "10.20.0.1"),
			site:  "NCCL_SOCKET_IFNAME==hsn0\r\n",
			want:  []string{"GLOO_SOCKET_IFNAME=hsn0", "TP_SOCKET_IFNAME=hsn0"},
			notes: []string{`NCCL_SOCKET_IFNAME="=hsn0\r" (from /etc/nccl.conf:1) is kept; but it does not allow hsn0`},
		},
		{
			name: "values that are ignored", choice: choice("hsn0", "10.20.0.1"),
			env:   map[string]string{"NCCL_SOCKET_IFNAME": "=", "GLOO_SOCKET_IFNAME": "", "NCCL_SOCKET_FAMILY": ""},
			want:  []string{"NCCL_SOCKET_IFNAME==hsn0", "GLOO_SOCKET_IFNAME=hsn0", "TP_SOCKET_IFNAME=hsn0"},
			notes: []string{`NCCL_SOCKET_IFNAME="=" (from the environment) is replaced: NCCL ignores a value this short`},
		},
		{
			name: "an address that its interface's name does not lead to", choice: shadowed,
			notes: []string{
				"NCCL_SOCKET_IFNAME is not set: the name lo leads to its first address, and not to 192.0.2.77; give 192.0.2.77 an interface of its own",
				"GLOO_SOCKET_IFNAME is not set", "TP_SOCKET_IFNAME is not set",
			},
		},
		{
			name: "a name with a comma", choice: choice("a,b", "10.20.0.1"),
			notes: []string{`NCCL_SOCKET_IFNAME is not set: the name "a,b" has a comma`, "GLOO_SOCKET_IFNAME is not set", "TP_SOCKET_IFNAME is not set"},
		},
		{
			name: "NCCL_COMM_ID", choice: choice("hsn0", "10.20.0.1"),
			env:   map[string]string{"NCCL_COMM_ID": "10.20.0.1:4000"},
			want:  []string{"NCCL_SOCKET_IFNAME==hsn0", "GLOO_SOCKET_IFNAME=hsn0", "TP_SOCKET_IFNAME=hsn0"},
			notes: []string{`NCCL_COMM_ID="10.20.0.1:4000" (from the environment) makes NCCL ignore NCCL_SOCKET_IFNAME`},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			vars, notes := Environment(tt.choice, lookupIn(tt.env), ParseConf("/etc/nccl.conf", []byte(tt.site))...)
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

// The real hosts of package netif, with the values that are right for them.
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
		inv, err := netif.ReadInventory(strings.NewReader(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		c, err := netif.Choose(inv, tt.Peers, netif.Request{})
		if err != nil {
			t.Fatal(err)
		}
		vars, _ := Environment(c, lookupIn(nil))
		got := map[string]string{}
		for _, v := range vars {
			got[v.Name] = v.Value
		}
		// One case lists four equal interfaces for NCCL's data; this package
		// names the one that was chosen, which is the first.
		want, _, _ := strings.Cut(tt.Want.NCCL, ",")
		if got[ncclInterface] != want || got[glooInterface] != tt.Want.Gloo {
			t.Errorf("%s: NCCL %q, Gloo %q, want %q, %q", tt.ID, got[ncclInterface], got[glooInterface], want, tt.Want.Gloo)
		}
	}
}

func TestAllows(t *testing.T) {
	tests := []struct {
		value string
		yes   []string
		no    []string
	}{
		{"eth", []string{"eth", "eth0", "eth10"}, []string{"veth0", "lo"}},
		{"eth1", []string{"eth1", "eth10"}, []string{"eth0"}},
		{"=eth1", []string{"eth1"}, []string{"eth10", "eth"}},
		{"=eth1,ib0", []string{"eth1", "ib0"}, []string{"ib01"}},
		{"^docker,lo", []string{"eth0"}, []string{"docker0", "lo", "lo1"}},
		{"^=docker0", []string{"docker01", "lo"}, []string{"docker0"}},
		{"=^eth0", []string{"^eth0"}, []string{"eth0", "lo"}}, // "^" comes first or is part of a name
		{"eth0:1,ib0:2", []string{"eth0", "ib0"}, []string{"lo"}},
		{"eth0,,ib0,", []string{"eth0", "ib0"}, []string{"lo"}},
		{"==", nil, []string{"eth0"}},
		{",,", []string{"eth0"}, nil},
		{"^,", nil, []string{"eth0"}},
		{"a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,eth0", []string{"p"}, []string{"qth0", "zeth0"}},
		{"=a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q", []string{"p"}, []string{"q"}},
	}
	for _, tt := range tests {
		for _, name := range tt.yes {
			if !allows(tt.value, name) {
				t.Errorf("%q does not allow %q", tt.value, name)
			}
		}
		for _, name := range tt.no {
			if allows(tt.value, name) {
				t.Errorf("%q allows %q", tt.value, name)
			}
		}
	}
}
