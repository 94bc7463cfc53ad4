package collective_test

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/conformance"
	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

func TestGoroutines(t *testing.T) {
	conformance.Run(t, conformance.Member{
		Connect: func(_ testing.TB, n int, timeout time.Duration) []collective.Communicator {
			return collective.Local(n, timeout)
		},
		Sizes: []int{4096, 4097, 70_001},
	})
}

// Around the sizes at which messages go other ways, and several segments for each rank.
var messageSizes = []int{8191, 8192, 16_385, 262_144, 700_001}

func TestMessages(t *testing.T) {
	conformance.Run(t, conformance.Member{Connect: processes(nil, false, 1), Sizes: messageSizes})
}

func TestMessagesOverSeveralSockets(t *testing.T) {
	conformance.Run(t, conformance.Member{Connect: processes(nil, false, 3), Sizes: []int{700_001}, Ranks: []int{2, 3}})
}

func TestSharedMemory(t *testing.T) {
	conformance.Run(t, conformance.Member{Connect: processes([]int{0, 0, 0, 0, 0}, true, 1), Sizes: []int{4096, 4097, 65_536, 262_145}})
}

// Nodes of one size and of many, with ranks in the order of nodes and in turns.
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

// processes connects ranks as if each were a process, on the given nodes.
func processes(nodes []int, memory bool, sockets int) func(testing.TB, int, time.Duration) []collective.Communicator {
	return func(t testing.TB, n int, timeout time.Duration) []collective.Communicator {
		t.Helper()
		o := collective.Options{Memory: memory, Sockets: sockets, Source: net.IPv4(127, 0, 0, 1),
			ConnectTimeout: 20 * time.Second, Timeout: timeout}
		if n <= len(nodes) {
			o.Nodes = nodes[:n]
		} else if nodes != nil {
			o.Nodes = make([]int, n)
		}
		var err error
		if o.Secret, err = wire.NewSecret(); err != nil {
			t.Fatal(err)
		}
		listeners := make([]net.Listener, n)
		for i := range listeners {
			if listeners[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
				t.Fatal(err)
			}
			o.Addrs = append(o.Addrs, listeners[i].Addr().String())
		}
		out := make([]collective.Communicator, n)
		var wg sync.WaitGroup
		for i := range n {
			o := o
			o.Rank = i
			wg.Go(func() {
				c, err := collective.Connect(t.Context(), listeners[i], o)
				if err != nil {
					t.Errorf("rank %d: %v", i, err)
					return
				}
				out[i] = c
			})
		}
		wg.Wait()
		if t.Failed() {
			t.FailNow()
		}
		return out
	}
}
