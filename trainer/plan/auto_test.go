package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/conformance"
)

// TestAutoIsWhatRanksDo compares the predicted algorithms with the paths of communicators with the
// same number of ranks.
func TestAutoIsWhatRanksDo(t *testing.T) {
	for _, layout := range []struct{ nodes, perNode int }{{1, 2}, {1, 4}, {2, 1}, {3, 1}, {5, 1}, {8, 1}, {12, 1}, {24, 1}, {2, 2}, {3, 4}, {7, 2}} {
		t.Run(fmt.Sprintf("%dx%d", layout.nodes, layout.perNode), func(t *testing.T) {
			ranks := layout.nodes * layout.perNode
			c := connect(t, ranks, layout.perNode)
			f := Fabric{PerNode: layout.perNode, Local: Link{1e-6, 1e10}, Network: Link{1e-5, 1e9}}
			for bytes := 4 << 10; bytes <= 4<<20; bytes *= 2 {
				// A multiple of all numbers of ranks, like ddp's buckets.
				elements := (bytes/4 + ranks - 1) / ranks * ranks
				whole, part := make([]float32, elements), make([]float32, elements/ranks)
				for name, way := range map[string]struct {
					call    collective.Call
					predict func(Algorithm, int, float64) (float64, Algorithm)
				}{
					"all-reduce":     {collective.AllReduce(whole, collective.Sum), f.AllReduce},
					"reduce-scatter": {collective.ReduceScatter(part, whole, collective.Sum), f.ReduceScatter},
					"all-gather":     {collective.AllGather(whole, part), f.AllGather},
				} {
					path := c.Path(way.call)
					_, got := way.predict(Auto, ranks, float64(4*elements))
					if want := wayOf(path); got != want {
						t.Errorf("%s of %d bytes: %s is predicted, and ranks take %+v", name, 4*elements, got, path)
					}
					if got != Hierarchical {
						continue
					}
					_, last, _ := strings.Cut(path.Algorithm, ", then ")
					algorithm, _ := f.reduceAcross(ranks, float64(4*elements))
					if name == "all-gather" {
						_, algorithm = f.acrossNodes(ranks).AllGather(Auto, layout.nodes, float64(4*elements/layout.perNode))
					}
					if want := byMessage[collective.Algorithm(last)]; algorithm != want {
						t.Errorf("%s of %d bytes: %s is predicted between nodes, and ranks take %+v", name, 4*elements, algorithm, path)
					}
				}
			}
		})
	}
}

// wayOf returns the algorithm of a path.
func wayOf(p collective.Path) Algorithm {
	switch p.Transport {
	case "tcp":
		return byMessage[collective.Algorithm(p.Algorithm)]
	case "shared memory":
		return Direct
	case "shared memory and tcp":
		return Hierarchical
	}
	panic("no prediction for " + p.Transport)
}

// connect returns the communicator of one rank.
func connect(t *testing.T, ranks, perNode int) collective.Communicator {
	t.Helper()
	o := collective.Options{Memory: true}
	for r := range ranks {
		o.Nodes = append(o.Nodes, r/perNode)
	}
	return conformance.Processes(t, ranks, o)[0]
}

// TestAutoIsNearTheBest checks that the algorithm chosen by bytes and ranks takes at most three
// times as long between nodes as the best one in the model, on slow and fast networks and with up
// to 16,384 nodes.
func TestAutoIsNearTheBest(t *testing.T) {
	for _, link := range []Link{{50e-6, 1.25e9}, {6e-6, 25e9}, {20e-6, 12.5e9}} {
		f := Fabric{PerNode: 1, Network: link}
		for ranks := 2; ranks <= 16384; ranks += 1 + ranks/3 {
			for bytes := 1 << 10; bytes <= 1<<30; bytes *= 2 {
				got, which := f.AllReduce(Auto, ranks, float64(bytes))
				for _, a := range []Algorithm{Ring, Doubling, Halving} {
					if best, _ := f.AllReduce(a, ranks, float64(bytes)); got > 3*best {
						t.Errorf("%+v: %d bytes on %d ranks take %v by %s, and %v by %s", link, bytes, ranks, got, which, best, a)
					}
				}
			}
		}
	}
}
