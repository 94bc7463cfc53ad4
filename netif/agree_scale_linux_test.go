package netif

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestAgreeThousandHosts checks that the CPU time of Agree grows at most with the number of host
// pairs, whether the hosts share a subnet or not. Ten times as many hosts may take 100 times as
// long; checking all triples would take 1,000 times as long. BenchmarkAgreeThousandHosts measures
// the time.
func TestAgreeThousandHosts(t *testing.T) {
	uses := map[string]string{"subnet": "hsn0", "cloud": "eth1", "racks": "hsn0", "policy": "ens2"}
	few, many := manyHosts(t, 100), manyHosts(t, 1000)
	for name, want := range uses {
		t.Run(name, func(t *testing.T) {
			work := func(nodes []Inventory) time.Duration {
				least := time.Hour
				for range 3 {
					start := threadTime(t)
					choices, err := Agree(nodes, Request{})
					if err != nil {
						t.Fatal(err)
					}
					least = min(least, threadTime(t)-start)
					for i, c := range choices {
						if c.Interface != want {
							t.Fatalf("host %d uses %s, want %s", i, c.Interface, want)
						}
					}
				}
				return least
			}
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			small, large := work(few[name]), work(many[name])
			t.Logf("100 hosts take %s of a core, 1000 %s", small, large)
			if large > 300*small {
				t.Errorf("1000 hosts take %s of a core, 100 %s", large, small)
			}
		})
	}
}

// threadTime returns the CPU time of this thread.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var used unix.Timespec
	must(t, unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &used))
	return time.Duration(used.Nano())
}

func manyHosts(t testing.TB, n int) map[string][]Inventory {
	t.Helper()
	nodes := map[string][]Inventory{"subnet": slurmHosts(t, n)}
	for i := range n {
		nodes["cloud"] = append(nodes["cloud"], cloudHost(i).done(t))
		nodes["policy"] = append(nodes["policy"], policyHost(i).done(t))
		nodes["racks"] = append(nodes["racks"], rackHost(i/20, 1+i%20).done(t))
	}
	return nodes
}

// BenchmarkAgreeThousandHosts measures the time in which 1,000 hosts agree on interfaces.
func BenchmarkAgreeThousandHosts(b *testing.B) {
	for name, nodes := range manyHosts(b, 1000) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := Agree(nodes, Request{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
