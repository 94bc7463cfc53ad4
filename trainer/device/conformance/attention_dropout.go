package conformance

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

func checkAttentionDropout(s *suite) {
	shape := device.AttentionShape{Heads: 3, HeadSize: 16, MaxLength: 130}
	op := s.d.NewAttention(shape)
	dropout := device.Dropout{P: 0.3, Key: 1234567, Stride: 1}
	for _, length := range []int{1, 5, 64, 130} {
		c := sequences{AttentionShape: shape, batch: 2, queries: length, keys: length}
		s.run(fmt.Sprintf("Gradients%d", length), func(s *suite) {
			d := dropout
			d.First, d.Stride, d.PerSample = 3, 4, c.perSample()
			c.mask, c.scale = s.weightMask(op, &c, d), scaleOf(d)
			c.fill(s)
			s.compare(op, &c, d)
		})
	}
	c := sequences{AttentionShape: shape, batch: 6, queries: 40, keys: 40}
	dropout.PerSample = c.perSample()
	s.run("Share", func(s *suite) {
		mask := s.weightMask(op, &c, dropout)
		seen, dropped, equal := 0, 0, 0
		c.seen(func(at, query, key int) {
			seen++
			if !mask[at] {
				dropped++
			}
			if mask[at] == mask[(at+c.queries*c.keys)%len(mask)] { // the next head or sample
				equal++
			}
		})
		p := float64(dropout.P)
		s.share("dropped weights", dropped, seen, p)
		s.share("equal choices of the next head", equal, seen, p*p+(1-p)*(1-p))
		other := dropout
		other.Key++
		equal = 0
		next := s.weightMask(op, &c, other)
		c.seen(func(at, query, key int) {
			if mask[at] == next[at] {
				equal++
			}
		})
		s.share("equal choices of the next key", equal, seen, p*p+(1-p)*(1-p))
	})
	s.run("Place", func(s *suite) {
		// The choice depends only on the position, not on the dropped value.
		d := dropout
		d.First, d.Stride = 2, 3
		weights, elements := s.weightMask(op, &c, d), s.dropoutMask(d, c.batch)
		c.seen(func(at, query, key int) {
			if weights[at] != elements[at] && !s.Failed() {
				s.Errorf("the weight of query %d and key %d is kept: %t, but element %d of a tensor: %t", query, key, weights[at], at, elements[at])
			}
		})
	})
	s.run("Division", func(s *suite) {
		batch := s.weightMask(op, &c, dropout)
		part := c
		part.batch = 2
		for rank := range 3 {
			d := dropout
			d.First, d.Stride = rank, 3
			s.sameSamples(fmt.Sprintf("every 3. sample from %d", rank), s.weightMask(op, &part, d), batch, d)
			d.First, d.Stride = 2*rank, 1
			s.sameSamples(fmt.Sprintf("2 samples from %d", d.First), s.weightMask(op, &part, d), batch, d)
		}
	})
	s.run("None", func(s *suite) {
		c := sequences{AttentionShape: shape, batch: 2, queries: 9, keys: 9}
		c.fill(s)
		s.compare(op, &c, device.Dropout{Key: 3, Stride: 1, PerSample: c.perSample()})
	})
}

func (c *sequences) perSample() int { return c.Heads * c.queries * c.keys }

// seen calls f with the position of each weight that the causal mask does not hide.
func (c *sequences) seen(f func(at, query, key int)) {
	for at := range c.batch * c.perSample() {
		if query, key := at/c.keys%c.queries, at%c.keys; key <= query+c.keys-c.queries {
			f(at, query, key)
		}
	}
}

// weightMask finds the weights that dropout keeps. They do not depend on the vectors: if the keys
// are zero, all weights are equal. If the values are rows of the identity matrix, the outputs are
// those weights, HeadSize at a time.
func (s *suite) weightMask(op device.Attention, c *sequences, d device.Dropout) []bool {
	s.Helper()
	probe := *c
	probe.fill(s)
	clear(probe.k)
	mask := make([]bool, c.batch*c.perSample())
	width := c.Heads * c.HeadSize
	out, logSum := s.matrixOf(probe.stored, nans(c.batch*c.queries*width), c.batch*c.queries, width, whole, true), s.empty(c.batch*c.queries*c.Heads)
	for first := 0; first < c.keys; first += c.HeadSize {
		for i := range probe.v {
			probe.v[i] = 0
			if key := i / width % c.keys; key-first == i%c.HeadSize {
				probe.v[i] = 1
			}
		}
		op.Forward(out, logSum, s.attentionInput(&probe, d))
		weights := s.numbers(out)
		c.seen(func(at, query, key int) {
			if key < first || key >= first+c.HeadSize {
				return
			}
			b, head := at/c.perSample(), at/(c.queries*c.keys)%c.Heads
			mask[at] = weights[c.row(b*c.queries+query, head)+key-first] != 0
		})
	}
	return mask
}
