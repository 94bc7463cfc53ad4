package netif

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
)

// A testCase is the inventory of a real host, with the correct choice.
type testCase struct {
	ID     string          `json:"id"`
	Links  json.RawMessage `json:"links"`
	Routes json.RawMessage `json:"routes"`
	Rules  json.RawMessage `json:"rules"`
	Peers  []netip.Addr    `json:"peers"`
	Want   struct {
		Interface string     `json:"ifname"`
		Src       netip.Addr `json:"src"`
	} `json:"want"`
	Warn string `json:"warn"`
	Note string `json:"note"`

	text      []byte // inventory
	inventory Inventory
}

// loadCases reads inventories of real hosts from testdata.
func loadCases(t testing.TB) []*testCase { t.Helper(); return readCases(t, "netif_cases.json", 20) }

// moreCases reads constructed inventories, one for each principle of the choice. Their
// warnings are prefixes of the warnings that Choose returns.
func moreCases(t testing.TB) []*testCase { t.Helper(); return readCases(t, "more_cases.json", 27) }

func readCases(t testing.TB, file string, n int) []*testCase {
	t.Helper()
	data, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var cases []*testCase
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) != n {
		t.Fatalf("%d cases, want %d", len(cases), n)
	}
	for _, c := range cases {
		text := map[string]any{"host": c.ID, "links": c.Links, "routes": c.Routes}
		if c.Rules != nil {
			text["rules"] = c.Rules
		}
		if c.text, err = json.Marshal(text); err != nil {
			t.Fatal(err)
		}
		c.inventory = parse(t, string(c.text))
	}
	return cases
}

// TestMoreCases checks the interface that Choose selects on additional hosts.
func TestMoreCases(t *testing.T) {
	for _, c := range moreCases(t) {
		t.Run(c.ID, func(t *testing.T) {
			got, err := Choose(c.inventory, c.Peers, Request{})
			if err != nil {
				t.Fatal(err)
			}
			if got.Interface != c.Want.Interface || got.Addr != c.Want.Src {
				t.Errorf("chose %s %s (%s), want %s %s: %s", got.Interface, got.Addr, got.Why, c.Want.Interface, c.Want.Src, c.Note)
			}
			if text := strings.Join(got.Warnings, "\n"); c.Warn == "" && text != "" || !strings.HasPrefix(text, c.Warn) {
				t.Errorf("warnings %q, want %q", got.Warnings, c.Warn)
			}
			for _, r := range got.Rejected {
				if r.Reason == "" {
					t.Errorf("%s was rejected without a reason", r.Interface)
				}
			}
		})
	}
}

// Part of the warning that Choose returns for each case. In the last case only the peer's
// inventory shows the problem; TestCaseMTUMismatch covers it.
var caseWarnings = map[string]string{
	"04-two-nics-same-subnet": "asymmetric route: packets to 192.168.5.13 leave by eno1",
	"20-l3-bgp-unnumbered":    "192.0.2.77 is on lo, and its packets leave by lan0 and lan1",
	"27-mtu-mismatch-node":    "",
}

// TestCases checks the interface that Choose selects on recorded hosts, with warnings.
func TestCases(t *testing.T) {
	for _, c := range loadCases(t) {
		t.Run(c.ID, func(t *testing.T) {
			got, err := Choose(c.inventory, c.Peers, Request{})
			if err != nil {
				t.Fatal(err)
			}
			if got.Interface != c.Want.Interface || got.Addr != c.Want.Src {
				t.Errorf("chose %s %s, want %s %s", got.Interface, got.Addr, c.Want.Interface, c.Want.Src)
			}
			want, known := caseWarnings[c.ID]
			if known != (c.Warn != "") {
				t.Errorf("the case warns %q, the table has %q", c.Warn, want)
			}
			switch {
			case want == "" && len(got.Warnings) > 0:
				t.Errorf("unexpected warnings %q", got.Warnings)
			case want != "" && (len(got.Warnings) != 1 || !strings.HasPrefix(got.Warnings[0], want)):
				t.Errorf("warnings %q, want one that starts with %q", got.Warnings, want)
			}
			if len(got.Rejected) != len(c.inventory.Links)-1 {
				t.Errorf("%d interfaces rejected, want %d", len(got.Rejected), len(c.inventory.Links)-1)
			}
			for _, r := range got.Rejected {
				if r.Reason == "" || r.Interface == got.Interface {
					t.Errorf("bad rejection %+v", r)
				}
			}
		})
	}
}

// TestCaseMTUMismatch checks that Agree warns if the MTUs of a network differ between hosts.
func TestCaseMTUMismatch(t *testing.T) {
	here := caseByID(t, "27-mtu-mismatch-node").inventory
	here.Host = "a"
	there := parse(t, `{"host": "b", "links": [
		`+loopback+`,
		{"index": 2, "name": "eth0", "arphrd": "ether", "flags": "up,running", "oper": "up", "mtu": 1500, "speed": 25000,
		 "pci": "0000:3b:00.0", "addrs": ["10.4.0.5/24"]}],
		"routes": [{"dst": "default", "dev": "eth0", "via": "10.4.0.1"}]}`)
	choices, err := Agree([]Inventory{here, there}, Request{})
	if err != nil {
		t.Fatal(err)
	}
	const want = "mtu differs: 9000 on a (eth0), 1500 on b (eth0)"
	for _, c := range choices {
		if c.Interface != "eth0" || len(c.Warnings) != 1 || !strings.HasPrefix(c.Warnings[0], want) {
			t.Errorf("%s with warnings %q, want eth0 with %q", c.Interface, c.Warnings, want)
		}
	}
}

// TestCasesRoundTrip checks that marshaling an inventory that was read gives the same JSON.
func TestCasesRoundTrip(t *testing.T) {
	for _, c := range slices.Concat(loadCases(t), moreCases(t)) {
		got, err := json.Marshal(c.inventory)
		if err != nil {
			t.Fatal(err)
		}
		var a, b any
		if err := json.Unmarshal(c.text, &a); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(got, &b); err != nil {
			t.Fatal(err)
		}
		want, _ := json.MarshalIndent(a, "", " ")
		have, _ := json.MarshalIndent(b, "", " ")
		if !bytes.Equal(want, have) {
			t.Errorf("%s: written\n%s\nwant\n%s", c.ID, have, want)
		}
	}
}

func caseByID(t testing.TB, id string) *testCase {
	t.Helper()
	for _, c := range loadCases(t) {
		if c.ID == id {
			return c
		}
	}
	t.Fatalf("no case %q", id)
	return nil
}

const loopback = `{"index": 1, "name": "lo", "arphrd": "loopback", "flags": "up,running", "oper": "unknown",
	"mtu": 65536, "speed": -1, "addrs": ["127.0.0.1/8", "::1/128"]}`

func parse(t testing.TB, text string) Inventory {
	t.Helper()
	cases, _, err := ReadCases(strings.NewReader(text))
	if err != nil {
		t.Fatalf("read %s: %v", text, err)
	}
	return cases[0].Inventory
}
