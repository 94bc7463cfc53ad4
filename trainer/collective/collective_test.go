package collective_test

import (
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/conformance"
)

// TestGoroutines runs the conformance suite on ranks that are goroutines of one process.
func TestGoroutines(t *testing.T) {
	conformance.Run(t, conformance.Member{
		Connect: func(_ testing.TB, n int, timeout time.Duration) []collective.Communicator {
			return collective.Local(n, timeout)
		},
		Sizes: []int{4096, 4097, 70_001},
	})
}

// messageSizes are around the thresholds between algorithms, and include several segments per rank.
var messageSizes = []int{8191, 8192, 16_385, 262_144, 700_001}

// TestMessages runs the conformance suite on ranks that exchange messages over TCP.
func TestMessages(t *testing.T) {
	conformance.Run(t, conformance.Member{Connect: processes(nil, false, 1), Sizes: messageSizes})
}

// TestMessagesOverSeveralSockets runs the conformance suite on ranks with three connections per
// pair.
func TestMessagesOverSeveralSockets(t *testing.T) {
	conformance.Run(t, conformance.Member{Connect: processes(nil, false, 3), Sizes: []int{700_001}, Ranks: []int{2, 3}})
}

// TestMessagesWithTags runs the conformance suite on ranks that authenticate each message.
func TestMessagesWithTags(t *testing.T) {
	conformance.Run(t, conformance.Member{Connect: func(t testing.TB, n int, timeout time.Duration) []collective.Communicator {
		return conformance.Processes(t, n, collective.Options{Authenticate: true, Timeout: timeout})
	}, Sizes: []int{8192, 700_001}, Ranks: []int{2, 3}})
}

// TestSharedMemory runs the conformance suite on ranks of one node that share memory.
func TestSharedMemory(t *testing.T) {
	conformance.Run(t, conformance.Member{Connect: processes([]int{0, 0, 0, 0, 0}, true, 1), Sizes: []int{4096, 4097, 65_536, 262_145}})
}

// TestNodes runs the conformance suite on nodes of equal and of different sizes, with ranks in
// block and in cyclic order.
func TestNodes(t *testing.T) {
	for name, nodes := range map[string][]int{
		"2+2":          {0, 0, 1, 1},
		"2+2, cyclic":  {0, 1, 0, 1},
		"2+2+2":        {0, 0, 1, 1, 2, 2},
		"3+3, cyclic":  {0, 1, 0, 1, 0, 1},
		"2+1+3":        {0, 0, 1, 2, 2, 2},
		"3+1+1, mixed": {0, 1, 0, 0, 2},
		"2+3":          {4, 4, 2, 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			m := conformance.Member{Connect: processes(nodes, true, 1), Sizes: []int{8192, 262_145}, Ranks: []int{len(nodes)}}
			if name == "2+2" {
				m.Sizes = messageSizes
			}
			conformance.Run(t, m)
		})
	}
}

// processes connects ranks on the given nodes as if each were a process.
func processes(nodes []int, memory bool, sockets int) func(testing.TB, int, time.Duration) []collective.Communicator {
	return func(t testing.TB, n int, timeout time.Duration) []collective.Communicator {
		t.Helper()
		o := collective.Options{Memory: memory, Sockets: sockets, Timeout: timeout}
		if n <= len(nodes) {
			o.Nodes = nodes[:n]
		} else if nodes != nil {
			o.Nodes = make([]int, n)
		}
		return conformance.Processes(t, n, o)
	}
}
