package plan

import (
	"fmt"
	"math/bits"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// Link is a network link: a message of b bytes takes Latency + b/Bandwidth seconds (Hockney 1994).
type Link struct {
	Latency   float64 `json:"latency_s"`
	Bandwidth float64 `json:"bytes_per_s"` // per direction, with equal traffic in the other direction
}

// send returns the time of a message if sharing ranks share the link.
func (l Link) send(bytes float64, sharing int) float64 {
	return l.Latency + bytes*float64(sharing)/l.Bandwidth
}

// Fabric is the network between ranks. The ranks of a node have consecutive numbers.
type Fabric struct {
	// PerNode is the number of ranks per node, at least 1.
	PerNode int
	// Local is the link of each rank to the others of its node. Network is the link of each node to
	// the other nodes, which its ranks share.
	Local, Network Link
}

// Algorithm is an algorithm for collectives.
type Algorithm int

// The algorithms for collectives.
const (
	// Auto is the trainer's choice, as [collective.Communicator.Path] reports it: Direct on one
	// node, Hierarchical between nodes with several ranks, otherwise the algorithm that
	// [collective.ReduceAlgorithm] selects.
	Auto Algorithm = iota
	// Ring sends pieces around a ring: minimal bytes, as many messages as ranks (Patarasuk and
	// Yuan 2009).
	Ring
	// Doubling exchanges all data with partners at distances 1, 2, 4...: minimal number of
	// messages, most bytes.
	Doubling
	// Halving exchanges halves, quarters, and so on, and gathers them again: few messages and
	// minimal bytes, some of them over long distances (Rabenseifner 2004).
	Halving
	// Hierarchical reduces within nodes like Direct, one part per rank. Then each rank reduces its
	// part between nodes with the algorithm of [collective.AcrossAlgorithm]. Finally it gathers
	// within nodes.
	Hierarchical
	// Direct reduces through shared memory, on one node only: each rank reduces one part by reading
	// it from the other ranks, and then reads the parts that they have reduced.
	Direct
)

var algorithms = []string{"auto", "ring", "doubling", "halving", "hierarchical", "direct"}

// byMessage maps the trainer's message-passing algorithms.
var byMessage = map[collective.Algorithm]Algorithm{
	collective.Ring: Ring, collective.Doubling: Doubling, collective.Halving: Halving,
}

// String returns the name of the algorithm.
func (a Algorithm) String() string { return algorithms[a] }

// ParseAlgorithm returns the algorithm with the given name.
func ParseAlgorithm(name string) (Algorithm, error) {
	for i, n := range algorithms {
		if n == name {
			return Algorithm(i), nil
		}
	}
	return 0, fmt.Errorf("unknown algorithm %q", name)
}

// Nodes returns the number of nodes for this number of ranks. The last node may be partially used.
func (f Fabric) Nodes(ranks int) int { return (ranks + f.PerNode - 1) / f.PerNode }

// ranksOnNode returns the number of ranks on a full node.
func (f Fabric) ranksOnNode(ranks int) int { return min(ranks, f.PerNode) }

// choose returns the algorithm to use. Auto and Hierarchical become Direct on one node, and
// Hierarchical on several nodes with several ranks each. With one rank per node they become
// otherwise, the algorithm that the size of the message selects.
func (f Fabric) choose(a Algorithm, ranks int, otherwise collective.Algorithm) Algorithm {
	switch {
	case a != Auto && a != Hierarchical:
		return a
	case f.Nodes(ranks) == 1:
		return Direct
	case f.ranksOnNode(ranks) > 1:
		return Hierarchical
	}
	return byMessage[otherwise]
}

// AllReduce returns the time of an all-reduce in seconds, and the algorithm used.
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
	algorithm, share := f.reduceAcross(ranks, bytes)
	seconds, _ := f.acrossNodes(ranks).AllReduce(algorithm, f.Nodes(ranks), share)
	return 2*f.direct(f.ranksOnNode(ranks), bytes) + seconds, a
}

// ReduceScatter returns the time of a reduce-scatter of bytes in seconds, and the algorithm used.
func (f Fabric) ReduceScatter(a Algorithm, ranks int, bytes float64) (float64, Algorithm) {
	if ranks < 2 || bytes == 0 {
		return 0, a
	}
	switch a = f.choose(a, ranks, collective.ReduceAlgorithm(int(bytes), ranks)); a {
	case Ring:
		return f.ring(ranks, bytes), a
	case Doubling:
		return f.doubling(ranks, bytes), a // each rank keeps its shard
	case Halving:
		return f.fold(ranks, bytes) + f.halves(ranks, bytes) + f.fold(ranks, bytes/float64(ranks)), a
	case Direct:
		return f.direct(ranks, bytes), a
	}
	algorithm, share := f.reduceAcross(ranks, bytes)
	seconds, _ := f.acrossNodes(ranks).ReduceScatter(algorithm, f.Nodes(ranks), share)
	return f.direct(f.ranksOnNode(ranks), bytes) + seconds, a
}

// AllGather returns the time in seconds of an all-gather of bytes in total, and the algorithm used.
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
	seconds, _ := f.acrossNodes(ranks).AllGather(Auto, f.Nodes(ranks), bytes/float64(f.ranksOnNode(ranks)))
	return f.direct(f.ranksOnNode(ranks), bytes) + seconds, a
}

// reduceAcross returns the algorithm with which the ranks of a node reduce between nodes, and the
// number of bytes per rank.
func (f Fabric) reduceAcross(ranks int, bytes float64) (Algorithm, float64) {
	a, share := collective.AcrossAlgorithm(int(bytes), f.ranksOnNode(ranks), f.Nodes(ranks))
	return byMessage[a], float64(share)
}

// acrossNodes returns the fabric between one rank per node. All ranks of a node send at the same
// time.
func (f Fabric) acrossNodes(ranks int) Fabric {
	return Fabric{PerNode: 1, Network: Link{f.Network.Latency, f.Network.Bandwidth / float64(f.ranksOnNode(ranks))}}
}

// direct returns the time of one of Direct's two steps.
func (f Fabric) direct(n int, bytes float64) float64 {
	return f.Local.send(bytes*float64(n-1)/float64(n), 1)
}

// ring returns the time of one pass around the ring: n-1 messages of 1/n of the data. One of them
// at a time leaves a node.
func (f Fabric) ring(n int, bytes float64) float64 {
	piece := bytes / float64(n)
	step := 0.0
	if f.ranksOnNode(n) > 1 {
		step = f.Local.send(piece, 1)
	}
	if f.Nodes(n) > 1 {
		step = max(step, f.Network.send(piece, 1))
	}
	return float64(n-1) * step
}

// exchange returns the time of one message from each rank to its partner at a distance.
func (f Fabric) exchange(n, distance int, bytes float64) float64 {
	if p := f.ranksOnNode(n); distance >= p {
		return f.Network.send(bytes, p)
	}
	return f.Local.send(bytes, 1)
}

// fold returns the time in which the ranks beyond a power of two send all their data to another
// rank, or receive the result.
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

// halves returns the time of one half of Halving, after its fold. The largest parts go to the most
// distant partners, so that the remaining part of a buffer is contiguous.
func (f Fabric) halves(n int, bytes float64) float64 {
	seconds := 0.0
	for distance := 1 << (bits.Len(uint(n)) - 1) / 2; distance >= 1; distance /= 2 {
		bytes /= 2
		seconds += f.exchange(n, distance, bytes)
	}
	return seconds
}
