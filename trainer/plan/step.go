package plan

import (
	"slices"

	"github.com/ddpbatch/ddpbatch/trainer/ddp"
)

// Machine describes the computers and the network.
type Machine struct {
	Fabric
	// FLOPS is the speed of forward and backward passes, in FLOP/s, on a rank that has the node to
	// itself. Bandwidth is the memory bandwidth of its update, in bytes per second.
	FLOPS, Bandwidth float64
	// Threads is the number of cores that a rank uses, and Cores the number of cores per node. If
	// there are too few, the ranks share them. If Cores is 0, they never share.
	Threads, Cores int
	// CPUCopies reports that the CPU copies messages within a node, as with sockets: a rank with
	// one core cannot compute meanwhile.
	CPUCopies bool
}

// cpuShare returns a rank's fraction of its full speed if ranks share cores.
func (m Machine) cpuShare(ranks int) float64 {
	if m.Cores == 0 {
		return 1
	}
	return min(1, float64(m.Cores)/float64(m.ranksOnNode(ranks)*max(1, m.Threads)))
}

// Training holds the training settings.
type Training struct {
	Strategy   ddp.Strategy
	Element    Element
	Algorithm  Algorithm
	Accumulate int // micro-batches per step, at least 1
}

// Step is the prediction for a number of ranks.
type Step struct {
	Ranks int `json:"ranks"`
	Nodes int `json:"nodes"`
	// Seconds is the duration of a step, Compute the time of its computation, and Communication the
	// time of its messages. Exposed is communication time that does not overlap computation.
	Seconds       float64 `json:"step_s"`
	Compute       float64 `json:"compute_s"`
	Communication float64 `json:"communication_s"`
	Exposed       float64 `json:"exposed_s"`
	// Sent is the minimum number of bytes that each rank must send, as with a ring or halving.
	Sent float64 `json:"sent_bytes"`
	// Efficiency is the speed relative to linear scaling from one rank.
	Efficiency float64 `json:"efficiency"`
	// Algorithm is the algorithm for the largest bucket.
	Algorithm string `json:"algorithm,omitempty"`
}

// Predict simulates a step with this number of ranks, each with its own micro-batches.
func Predict(w Work, t Training, m Machine, ranks int) Step {
	s := predict(w, t, m, ranks)
	s.Efficiency = predict(w, t, m, 1).Seconds / s.Seconds
	return s
}

// predict returns the prediction without Efficiency.
func predict(w Work, t Training, m Machine, ranks int) Step {
	s := simulator{Training: t, Machine: m, work: w, ranks: ranks, buckets: w.buckets(t.Element.Grad, ranks)}
	s.rate = m.FLOPS * m.cpuShare(ranks)
	s.on = networkResource
	if m.CPUCopies && m.Nodes(ranks) == 1 && float64(max(1, m.Threads))*m.cpuShare(ranks) <= 1 {
		s.on = cpuResource
	}
	if m.CPUCopies && m.Cores > 0 {
		s.Local.Bandwidth *= min(1, float64(m.Cores)/float64(m.ranksOnNode(ranks)))
	}
	out := s.step(1)
	if more := t.Accumulate - 1; more > 0 {
		// Every further micro-batch takes as long as the second.
		two := s.step(2)
		for _, v := range []struct {
			one *float64
			two float64
		}{{&out.Seconds, two.Seconds}, {&out.Compute, two.Compute}, {&out.Communication, two.Communication}, {&out.Sent, two.Sent}} {
			*v.one += float64(more) * (v.two - *v.one)
		}
	}
	out.Exposed = max(0, out.Seconds-out.Compute)
	out.Ranks, out.Nodes = ranks, m.Nodes(ranks)
	if ranks > 1 {
		biggest := slices.MaxFunc(s.buckets, func(a, b bucket) int { return a.elements - b.elements })
		_, a := s.reduce(biggest)
		out.Algorithm = a.String()
	}
	return out
}

// simulator computes the timeline of a step.
type simulator struct {
	Training
	Machine
	work    Work
	ranks   int
	buckets []bucket
	rate    float64  // FLOP/s
	on      resource // resource that messages need
	time    timeline
	busy    float64 // seconds of messages
	sent    float64 // bytes
}

// step simulates a step with this number of micro-batches.
func (s simulator) step(micro int) Step {
	var ready []int // what the update waits for
	for i := range micro {
		last := i == micro-1
		if s.Strategy == ddp.ZeRO3 {
			ready = s.zero3Passes(last || !s.work.NoSync)
			continue
		}
		s.compute(s.work.Forward)
		ready = s.backward(last || s.Strategy == ddp.ZeRO2 && !s.work.NoSync)
	}
	params := float64(s.work.NumParams())
	if s.Strategy >= ddp.ZeRO1 {
		params /= float64(s.ranks)
	}
	updating := params * s.Element.Update / (s.Bandwidth * s.cpuShare(s.ranks))
	if s.Element.UpdateFLOP > 0 {
		updating += params * s.Element.UpdateFLOP / s.rate
	}
	updated := s.time.add(cpuResource, updating, ready...)
	if s.Strategy == ddp.ZeRO1 || s.Strategy == ddp.ZeRO2 {
		for _, b := range s.buckets {
			s.gather(b, updated)
		}
	}
	end, busy := s.time.end()
	compute := busy[cpuResource]
	if s.on == cpuResource {
		compute -= s.busy
	}
	return Step{Seconds: end, Compute: compute, Communication: s.busy, Sent: s.sent}
}

// compute adds computation.
func (s *simulator) compute(flop float64, after ...int) int {
	return s.time.add(cpuResource, flop/s.rate, after...)
}

// message adds a message of the given duration, in which each rank sends its share of bytes.
func (s *simulator) message(seconds, bytes float64, after ...int) int {
	s.busy += seconds
	s.sent += bytes * float64(s.ranks-1) / float64(s.ranks)
	return s.time.add(s.on, seconds, after...)
}

// reduce returns the time to reduce a bucket: an all-reduce with DDP, otherwise a reduce-scatter.
func (s *simulator) reduce(b bucket) (float64, Algorithm) {
	bytes := s.Element.sent() * float64(b.elements)
	if s.Strategy == ddp.DDP {
		return s.AllReduce(s.Algorithm, s.ranks, bytes)
	}
	return s.ReduceScatter(s.Algorithm, s.ranks, bytes)
}

// send adds the reduction of a bucket.
func (s *simulator) send(b bucket, after ...int) int {
	seconds, _ := s.reduce(b)
	bytes := s.Element.sent() * float64(b.elements)
	if s.Strategy == ddp.DDP {
		bytes *= 2
	}
	return s.message(seconds, bytes, after...)
}

// gather adds the all-gather of a bucket's weights.
func (s *simulator) gather(b bucket, after ...int) int {
	bytes := s.Element.Weight * float64(b.elements)
	seconds, _ := s.AllGather(s.Algorithm, s.ranks, bytes)
	return s.message(seconds, bytes, after...)
}

// backward adds a backward pass. Buckets are reduced as they become ready.
func (s *simulator) backward(reduce bool) []int {
	var all []int
	for _, b := range s.buckets {
		done := s.compute(b.flop)
		if reduce {
			done = s.send(b, done)
		}
		all = append(all, done)
	}
	return all
}

// zero3Passes adds both passes of ZeRO-3. In both passes, a bucket's weights are gathered before
// use, one bucket ahead of the computation. If reduce is set, gradients are reduced as they become
// ready.
func (s *simulator) zero3Passes(reduce bool) []int {
	forward := s.work.Forward / max(1, s.work.backward())
	units := append(slices.Clone(s.buckets), s.buckets...)
	slices.Reverse(units[:len(s.buckets)])
	var all []int
	var computed []int
	fetch := func(i int) int {
		if i >= 2 {
			return s.gather(units[i], computed[i-2])
		}
		return s.gather(units[i])
	}
	next := fetch(0)
	for i, b := range units {
		fetched := next
		if i+1 < len(units) {
			// It waits until the bucket before the current one is computed.
			next = fetch(i + 1)
		}
		if i < len(s.buckets) {
			computed = append(computed, s.compute(b.flop*forward, fetched))
			continue
		}
		computed = append(computed, s.compute(b.flop, fetched))
		if reduce {
			all = append(all, s.send(b, computed[i]))
		} else {
			all = append(all, computed[i])
		}
	}
	return all
}
