package plan

import (
	"fmt"
	"math/bits"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// Link is a way for messages: one of b bytes takes Latency + b/Bandwidth seconds
// (Hockney 1994).
type Link struct {
	Latency   float64 `json:"latency_s"`
	Bandwidth float64 `json:"bytes_per_s"` // in one direction, while as much comes in
}

// send is the time of a message when so many share the link.
func (l Link) send(bytes float64, sharing int) float64 {
	return l.Latency + bytes*float64(sharing)/l.Bandwidth
}

// Fabric is what connects ranks. Those of a node have neighbouring numbers.
type Fabric struct {
	// PerNode is the ranks of a node, at least 1.
	PerNode int
	// Local is the link of each rank to the others of its node, Network that of each
	// node to the others: its ranks share it.
	Local, Network Link
}

// Algorithm is how ranks add up what each of them has.
type Algorithm int

// The algorithms of collectives.
const (
	// Auto is what ranks do by themselves, as [collective.Communicator.Path] says: Direct
	// on one node, Hierarchical between nodes of several ranks, else the one of the others
	// that [collective.ReduceAlgorithm] chooses.
	Auto Algorithm = iota
	// Ring sends pieces around: the fewest bytes, as many messages as ranks
	// (Patarasuk and Yuan 2009).
	Ring
	// Doubling exchanges everything with partners at distances 1, 2, 4...: the fewest
	// messages, the most bytes.
	Doubling
	// Halving exchanges halves, quarters... and gathers them back: few messages and
	// the fewest bytes, in part over long ways (Rabenseifner 2004).
	Halving
	// Hierarchical adds up within nodes as Direct does, each rank one part; then each
	// rank its part between nodes, as [collective.AcrossAlgorithm] says; and gathers
	// within nodes.
	Hierarchical
	// Direct is that each rank adds up one part where the others have it, and then reads
	// what the others have added up: two steps, on one node only.
	Direct
)

var algorithms = []string{"auto", "ring", "doubling", "halving", "hierarchical", "direct"}

// ofMessages are the trainer's algorithms.
var ofMessages = map[collective.Algorithm]Algorithm{
	collective.Ring: Ring, collective.Doubling: Doubling, collective.Halving: Halving,
}

// String is the algorithm's name.
func (a Algorithm) String() string { return algorithms[a] }

// ParseAlgorithm finds an algorithm by its name.
func ParseAlgorithm(name string) (Algorithm, error) {
	for i, n := range algorithms {
		if n == name {
			return Algorithm(i), nil
		}
	}
	return 0, fmt.Errorf("unknown algorithm %q", name)
}

// Nodes is how many nodes so many ranks fill, the last one perhaps in part.
func (f Fabric) Nodes(ranks int) int { return (ranks + f.PerNode - 1) / f.PerNode }

// onNode is the ranks of a full node.
func (f Fabric) onNode(ranks int) int { return min(ranks, f.PerNode) }

// choose is the algorithm where ranks may take any: of these, if messages are all of one
// kind.
func (f Fabric) choose(a Algorithm, ranks int, otherwise collective.Algorithm) Algorithm {
	switch {
	case a != Auto && a != Hierarchical:
		return a
	case f.Nodes(ranks) == 1:
		return Direct
	case f.onNode(ranks) > 1:
		return Hierarchical
	}
	return ofMessages[otherwise]
}

// AllReduce is the seconds in which ranks add up so many bytes, and the algorithm
// that was taken.
func (f Fabric) AllReduce(a Algorithm, ranks int, bytes float64) (float64, Algorithm) {
	if ranks < 2 || bytes == 0 {
		return 0, a
	}
	switch a = f.choose(a, ranks, collective.ReduceAlgorithm(int(bytes), ranks)); a {
	case Ring:
		return 2 * f.ring(ranks, bytes), a
	case Doubling:
		return f.doubling(ranks, bytes), a
	case Halving:
		return 2 * (f.fold(ranks, bytes) + f.halves(ranks, bytes)), a
	case Direct:
		return 2 * f.direct(ranks, bytes), a
	}
	between, share := f.reduceAcross(ranks, bytes)
	seconds, _ := f.counterparts(ranks).AllReduce(between, f.Nodes(ranks), share)
	return 2*f.direct(f.onNode(ranks), bytes) + seconds, a
}

// ReduceScatter is the seconds in which so many bytes are added up with a part of the
// sum left on each rank.
func (f Fabric) ReduceScatter(a Algorithm, ranks int, bytes float64) (float64, Algorithm) {
	if ranks < 2 || bytes == 0 {
		return 0, a
	}
	switch a = f.choose(a, ranks, collective.ReduceAlgorithm(int(bytes), ranks)); a {
	case Ring:
		return f.ring(ranks, bytes), a
	case Doubling:
		return f.doubling(ranks, bytes), a // of which a part is kept
	case Halving:
		return f.fold(ranks, bytes) + f.halves(ranks, bytes) + f.fold(ranks, bytes/float64(ranks)), a
	case Direct:
		return f.direct(ranks, bytes), a
	}
	between, share := f.reduceAcross(ranks, bytes)
	seconds, _ := f.counterparts(ranks).ReduceScatter(between, f.Nodes(ranks), share)
	return f.direct(f.onNode(ranks), bytes) + seconds, a
}

// AllGather is the seconds in which parts of so many bytes in all come to all ranks.
func (f Fabric) AllGather(a Algorithm, ranks int, bytes float64) (float64, Algorithm) {
	if ranks < 2 || bytes == 0 {
		return 0, a
	}
	switch a = f.choose(a, ranks, collective.GatherAlgorithm(int(bytes), ranks)); a {
	case Ring:
		return f.ring(ranks, bytes), a
	case Doubling, Halving: // the second half of either
		return f.fold(ranks, bytes/float64(ranks)) + f.halves(ranks, bytes) + f.fold(ranks, bytes), a
	case Direct:
		return f.direct(ranks, bytes), a
	}
	seconds, _ := f.counterparts(ranks).AllGather(Auto, f.Nodes(ranks), bytes/float64(f.onNode(ranks)))
	return f.direct(f.onNode(ranks), bytes) + seconds, a
}

// reduceAcross is how the ranks of a node reduce over nodes, and the bytes that each of
// them works on.
func (f Fabric) reduceAcross(ranks int, bytes float64) (Algorithm, float64) {
	a, share := collective.AcrossAlgorithm(int(bytes), f.onNode(ranks), f.Nodes(ranks))
	return ofMessages[a], float64(share)
}

// counterparts connects one rank of each node: all of a node's ranks send at once.
func (f Fabric) counterparts(ranks int) Fabric {
	return Fabric{PerNode: 1, Network: Link{f.Network.Latency, f.Network.Bandwidth / float64(f.onNode(ranks))}}
}

// direct is one of its two steps.
func (f Fabric) direct(n int, bytes float64) float64 {
	return f.Local.send(bytes*float64(n-1)/float64(n), 1)
}

// ring is one way around: n-1 messages of an n-th. One of them at a time leaves a
// node.
func (f Fabric) ring(n int, bytes float64) float64 {
	piece := bytes / float64(n)
	step := 0.0
	if f.onNode(n) > 1 {
		step = f.Local.send(piece, 1)
	}
	if f.Nodes(n) > 1 {
		step = max(step, f.Network.send(piece, 1))
	}
	return float64(n-1) * step
}

// exchange is the time of a message of each rank to its partner at a distance.
func (f Fabric) exchange(n, distance int, bytes float64) float64 {
	if p := f.onNode(n); distance >= p {
		return f.Network.send(bytes, p)
	}
	return f.Local.send(bytes, 1)
}

// fold has the ranks beyond a power of two take part through others: before and
// after, each one message of everything.
func (f Fabric) fold(n int, bytes float64) float64 {
	power := 1 << (bits.Len(uint(n)) - 1)
	if power == n {
		return 0
	}
	return f.exchange(n, power, bytes)
}

func (f Fabric) doubling(n int, bytes float64) float64 {
	seconds := 2 * f.fold(n, bytes)
	for distance := 1; 2*distance <= n; distance *= 2 {
		seconds += f.exchange(n, distance, bytes)
	}
	return seconds
}

// halves is one half of halving, after its fold: the largest parts go to the farthest
// partners, so that what is left of a buffer lies together.
func (f Fabric) halves(n int, bytes float64) float64 {
	seconds := 0.0
	for distance := 1 << (bits.Len(uint(n)) - 1) / 2; distance >= 1; distance /= 2 {
		bytes /= 2
		seconds += f.exchange(n, distance, bytes)
	}
	return seconds
}
