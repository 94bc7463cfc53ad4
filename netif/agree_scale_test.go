package netif

import (
	"testing"
	"time"
)

// A job of a thousand hosts agrees in less than a second, whether its hosts
// share a subnet or not.
func TestAgreeThousandHosts(t *testing.T) {
	uses := map[string]string{"subnet": "hsn0", "cloud": "eth1", "racks": "hsn0", "policy": "ens2"}
	for name, nodes := range thousandHosts(t) {
		fastest := time.Hour
		for try := 0; try < 3 && fastest > time.Second; try++ { // others may be using the machine
			start := time.Now()
			choices, err := Agree(nodes, Request{})
			if err != nil {
				t.Fatal(err)
			}
			fastest = min(fastest, time.Since(start))
			for i, c := range choices {
				if c.Interface != uses[name] {
					t.Fatalf("%s: host %d uses %s, want %s", name, i, c.Interface, uses[name])
				}
			}
		}
		if fastest > time.Second {
			t.Errorf("%s: took %s", name, fastest)
		}
	}
}

func thousandHosts(t testing.TB) map[string][]Inventory {
	t.Helper()
	nodes := map[string][]Inventory{"subnet": slurmHosts(t, 1000)}
	for i := range 1000 {
		nodes["cloud"] = append(nodes["cloud"], cloudHost(i).done(t))
		nodes["policy"] = append(nodes["policy"], policyHost(i).done(t))
		nodes["racks"] = append(nodes["racks"], rackHost(i/20, 1+i%20).done(t))
	}
	return nodes
}

func BenchmarkAgreeThousandHosts(b *testing.B) {
	for name, nodes := range thousandHosts(b) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := Agree(nodes, Request{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
