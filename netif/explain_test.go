package netif

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "rewrite golden files")

// TestExplain compares explanations of a choice with golden files.
func TestExplain(t *testing.T) {
	agreed := func(nodes ...*hostSpec) Choice {
		var invs []Inventory
		for _, n := range nodes {
			invs = append(invs, n.done(t))
		}
		choices, err := Agree(invs, Request{})
		if err != nil {
			t.Fatal(err)
		}
		return choices[0]
	}
	chosen := func(id string) Choice {
		tc := caseByID(t, id)
		c, err := Choose(tc.inventory, tc.Peers, Request{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	lame := newHostSpec("n3").link(Link{Name: "eth0", Kind: "veth"}, "10.10.0.4/16").
		link(Link{Name: "hsn0", Kind: "veth", MTU: 9000, Oper: "down", Flags: Up}, "10.20.0.4/16")
	tests := map[string]Choice{
		"cluster":    agreed(slurmHost(1), slurmHost(2), slurmHost(3), slurmHost(4)),
		"degraded":   agreed(slurmHost(1), slurmHost(2), lame),
		"racks":      agreed(rackHost(0, 1), rackHost(0, 2), rackHost(1, 1)),
		"dgx":        chosen("13-dgx-h100"),
		"same-net":   chosen("04-two-nics-same-subnet"),
		"unnumbered": chosen("20-l3-bgp-unnumbered"),
		"offline":    chosen("28-single-node-offline"),
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := c.Explain(&got); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", "explain-"+name+".golden")
			if *update {
				if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Errorf("got\n%swant\n%s", got.Bytes(), want)
			}
		})
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

// TestExplainReportsErrors checks that Explain returns the error of its writer.
func TestExplainReportsErrors(t *testing.T) {
	if err := (Choice{}).Explain(full{}); err == nil {
		t.Error("no error from a writer that fails")
	}
}
