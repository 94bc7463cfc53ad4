package plan

import (
	"slices"

	"github.com/ddpbatch/ddpbatch/trainer/ddp"
)

// Machine is what computes and connects ranks.
type Machine struct {
	Fabric
	// FLOPS is the operations a second of a rank that has the node to itself, in
	// forward and backward passes, and Bandwidth the bytes a second that its update
	// moves.
	FLOPS, Bandwidth float64
	// Threads is the cores that a rank makes use of, and Cores those of a node, which
	// ranks share if there are too few. Zero: never shared.
	Threads, Cores int
	// Copying says that messages within a node are the processor's work, as they are
	// where sockets connect ranks: a rank that has one core computes nothing meanwhile.
	Copying bool
}

// speedLeft is the part of its speed that a rank is left with.
func (m Machine) speedLeft(ranks int) float64 {
	if m.Cores == 0 {
		return 1
	}
	return min(1, float64(m.Cores)/float64(m.onNode(ranks)*max(1, m.Threads)))
}

// Training is how a model is trained.
type Training struct {
	Strategy   ddp.Strategy
	Element    Element
	Algorithm  Algorithm
	Accumulate int // micro-batches of a step, at least 1
}

// Step is the prediction for a number of ranks.
type Step struct {
	Ranks int `json:"ranks"`
	Nodes int `json:"nodes"`
	// Seconds is the time of a step; Compute that of its computation, Communication
	// that of its messages, and Exposed the part of them that computation did not hide.
	Seconds       float64 `json:"step_s"`
	Compute       float64 `json:"compute_s"`
	Communication float64 `json:"communication_s"`
	Exposed       float64 `json:"exposed_s"`
	// Sent is the fewest bytes that each rank must send, as a ring or halving does.
	Sent float64 `json:"sent_bytes"`
	// Efficiency is the part of the speed of one rank, times ranks, that is reached.
	Efficiency float64 `json:"efficiency"`
	// Algorithm is the one for the largest bucket.
	Algorithm string `json:"algorithm,omitempty"`
}

// Predict simulates a step of so many ranks, each with its own micro-batches of
// the work.
func Predict(w Work, t Training, m Machine, ranks int) Step {
	s := predict(w, t, m, ranks)
	s.Efficiency = predict(w, t, m, 1).Seconds / s.Seconds
	return s
}

func predict(w Work, t Training, m Machine, ranks int) Step {
	s := simulator{Training: t, Machine: m, work: w, ranks: ranks, buckets: w.buckets(t.Element.Grad, ranks)}
	s.rate = m.FLOPS * m.speedLeft(ranks)
	s.on = network
	if m.Copying && m.Nodes(ranks) == 1 && float64(max(1, m.Threads))*m.speedLeft(ranks) <= 1 {
		s.on = processor
	}
	if m.Copying && m.Cores > 0 {
		s.Local.Bandwidth *= min(1, float64(m.Cores)/float64(m.onNode(ranks)))
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

// simulator lays a step out in time.
type simulator struct {
	Training
	Machine
	work    Work
	ranks   int
	buckets []bucket
	rate    float64  // operations a second
	on      resource // that messages need
	time    timeline
	busy    float64 // seconds of messages
	sent    float64 // bytes
}

// step is one of so many micro-batches.
func (s simulator) step(micro int) Step {
	var ready []int // what the update waits for
	for i := range micro {
		last := i == micro-1
		if s.Strategy == ddp.ZeRO3 {
			ready = s.gathered(last || !s.work.NoSync)
			continue
		}
		s.compute(s.work.Forward)
		ready = s.backward(last || s.Strategy == ddp.ZeRO2 && !s.work.NoSync)
	}
	params := float64(s.work.NumParams())
	if s.Strategy >= ddp.ZeRO1 {
		params /= float64(s.ranks)
	}
	updated := s.time.add(processor, params*s.Element.Update/(s.Bandwidth*s.speedLeft(s.ranks)), ready...)
	if s.Strategy == ddp.ZeRO1 || s.Strategy == ddp.ZeRO2 {
		for _, b := range s.buckets {
			s.gather(b, updated)
		}
	}
	end, busy := s.time.end()
	compute := busy[processor]
	if s.on == processor {
		compute -= s.busy
	}
	return Step{Seconds: end, Compute: compute, Communication: s.busy, Sent: s.sent}
}

// compute adds operations.
func (s *simulator) compute(flop float64, after ...int) int {
	return s.time.add(processor, flop/s.rate, after...)
}

// message adds what takes so long and has each rank send so many bytes.
func (s *simulator) message(seconds, bytes float64, after ...int) int {
	s.busy += seconds
	s.sent += bytes * float64(s.ranks-1) / float64(s.ranks)
	return s.time.add(s.on, seconds, after...)
}

// reduce is the time in which a bucket is added up: on all ranks, or where the
// gradients' owners alone need it, on each its part.
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

// gather adds the gathering of a bucket's weights.
func (s *simulator) gather(b bucket, after ...int) int {
	bytes := s.Element.Weight * float64(b.elements)
	seconds, _ := s.AllGather(s.Algorithm, s.ranks, bytes)
	return s.message(seconds, bytes, after...)
}

// backward adds a backward pass. Buckets are sent as they become ready.
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

// gathered adds both passes of ZeRO-3: before its turn in either, a bucket's
// weights are gathered, one bucket ahead of the one that is computed. Gradients are sent as
// they become ready, if they are to be.
func (s *simulator) gathered(reduce bool) []int {
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
			// Its own turn comes after the one before this has been computed.
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
