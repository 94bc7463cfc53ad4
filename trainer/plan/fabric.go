package plan

import (
	"fmt"
	"math"
	"math/bits"
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
	// Auto is what ranks do by themselves: hierarchical between nodes of several ranks,
	// else whichever of the others takes the least time.
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
	// Hierarchical adds up within nodes, each rank one part; then each rank its part
	// between nodes, by the faster of ring and halving; and gathers within nodes.
	Hierarchical
)

var algorithms = []string{"auto", "ring", "doubling", "halving", "hierarchical"}

// Algorithms returns the names of all algorithms.
func Algorithms() []string { return algorithms }

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

// auto is the algorithms that ranks may take: of these, where messages are all of one
// kind.
func (f Fabric) auto(ranks int, these ...Algorithm) []Algorithm {
	if f.Nodes(ranks) > 1 && f.onNode(ranks) > 1 {
		return []Algorithm{Hierarchical}
	}
	return these
}

// AllReduce is the seconds in which ranks add up so many bytes, and the algorithm
// that was taken.
func (f Fabric) AllReduce(a Algorithm, ranks int, bytes float64) (float64, Algorithm) {
	if ranks < 2 || bytes == 0 {
		return 0, a
	}
	switch a {
	case Ring:
		return 2 * f.ring(ranks, bytes), a
	case Doubling:
		return f.doubling(ranks, bytes), a
	case Halving:
		return 2 * f.halving(ranks, bytes), a
	case Hierarchical:
		return 2 * f.hierarchical(ranks, bytes), a
	}
	best := math.Inf(1)
	for _, b := range f.auto(ranks, Ring, Doubling, Halving) {
		if seconds, _ := f.AllReduce(b, ranks, bytes); seconds < best {
			best, a = seconds, b
		}
	}
	return best, a
}

// Scatter is the seconds in which so many bytes are added up with a part of the sum
// left on each rank, or in which such parts are gathered on all: each is half of an
// all-reduce. Doubling has no such half; halving stands in for it.
func (f Fabric) Scatter(a Algorithm, ranks int, bytes float64) (float64, Algorithm) {
	if ranks < 2 || bytes == 0 {
		return 0, a
	}
	switch a {
	case Ring:
		return f.ring(ranks, bytes), a
	case Doubling, Halving:
		return f.halving(ranks, bytes), Halving
	case Hierarchical:
		return f.hierarchical(ranks, bytes), a
	}
	best := math.Inf(1)
	for _, b := range f.auto(ranks, Ring, Halving) {
		if seconds, _ := f.Scatter(b, ranks, bytes); seconds < best {
			best, a = seconds, b
		}
	}
	return best, a
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

// halving is one half of it: the largest parts go to the nearest partners.
func (f Fabric) halving(n int, bytes float64) float64 {
	seconds := f.fold(n, bytes)
	for distance := 1; 2*distance <= n; distance *= 2 {
		seconds += f.exchange(n, distance, bytes/2/float64(distance))
	}
	return seconds
}

// hierarchical is one half of it.
func (f Fabric) hierarchical(n int, bytes float64) float64 {
	p, nodes := f.onNode(n), f.Nodes(n)
	local := Fabric{PerNode: p, Local: f.Local}.ring(p, bytes)
	if nodes == 1 {
		return local
	}
	// Each rank has one partner on every node, and all of a node's ranks send at once.
	between := Fabric{PerNode: 1, Network: Link{f.Network.Latency, f.Network.Bandwidth / float64(p)}}
	return local + min(between.ring(nodes, bytes/float64(p)), between.halving(nodes, bytes/float64(p)))
}
