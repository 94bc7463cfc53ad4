package conformance

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

func checkAttention(s *suite) {
	const longest = 257
	for _, size := range []struct{ batch, heads, headSize int }{{1, 1, 1}, {2, 3, 5}, {3, 2, 16}, {1, 2, 64}, {1, 1, 128}} {
		for _, precision := range []device.Precision{device.FP32, device.BF16} {
			shape := device.AttentionShape{Heads: size.heads, HeadSize: size.headSize, MaxLength: longest, Precision: precision}
			op := s.d.NewAttention(shape)
			for _, length := range []int{64, 1, 2, 5, 17, 130, longest} {
				if length > 64 && precision == device.BF16 {
					continue // bounds of bfloat16 are wide: lengths are tested with FP32
				}
				c := sequences{AttentionShape: shape, batch: size.batch, queries: length, keys: length}
				s.run(c.String(), func(s *suite) { s.attention(op, c) })
			}
			for _, length := range [][2]int{{1, 2}, {1, 130}, {3, 7}, {20, 70}} {
				c := sequences{AttentionShape: shape, batch: size.batch, queries: length[0], keys: length[1]}
				s.run(c.String(), func(s *suite) { s.attention(op, c) })
			}
		}
	}
	s.run("LargeScores", func(s *suite) {
		c := sequences{AttentionShape: device.AttentionShape{Heads: 1, HeadSize: 8, MaxLength: 70}, batch: 1, queries: 70, keys: 70}
		c.fill(s)
		for i := range c.q {
			c.q[i] *= 300 // exp of a score overflows float32
		}
		s.compare(s.d.NewAttention(c.AttentionShape), &c, device.Dropout{})
	})
}

func (c *sequences) String() string {
	return fmt.Sprintf("%d of %d queries, %d keys, %+v", c.batch, c.queries, c.keys, c.AttentionShape)
}

// fill sets all vectors to random values.
func (c *sequences) fill(s *suite) {
	width := c.Heads * c.HeadSize
	c.stored = s.d.Stored(c.Precision)
	normal := func(n int) []float32 { return roundTo(c.stored, s.normal(n)) }
	c.q, c.k, c.v = normal(c.batch*c.queries*width), normal(c.batch*c.keys*width), normal(c.batch*c.keys*width)
	c.dout = normal(len(c.q))
}

func (s *suite) attention(op device.Attention, c sequences) {
	c.fill(s)
	s.compare(op, &c, device.Dropout{})
}

// compare compares both passes with the reference.
func (s *suite) compare(op device.Attention, c *sequences, d device.Dropout) {
	s.Helper()
	width := c.Heads * c.HeadSize
	rows := c.batch * c.queries
	in := s.attentionInput(c, d)
	out, logSum := s.matrixOf(c.stored, nans(rows*width), rows, width, whole, true), s.empty(rows*c.Heads)
	op.Forward(out, logSum, in)
	want, wantSum := c.forward()
	s.close("out", s.numbers(out), want)
	s.close("logSum", s.floats(logSum), wantSum)
	if c.queries < c.keys {
		return // generation has no backward pass
	}
	dq, dk, dv := s.packed(c.stored, nans(len(c.q)), nans(len(c.k)), nans(len(c.v)), width, true)
	outs, sums := s.matrixOf(c.stored, s.numbers(out), rows, width, whole, false), s.input(s.floats(logSum))
	op.Backward(dq, dk, dv, s.matrixOf(c.stored, c.dout, rows, width, whole, false), outs, sums, in)
	wantQ, wantK, wantV := c.backward(want)
	for _, g := range []struct {
		what string
		got  device.Matrix
		want []real
	}{{"dq", dq, wantQ}, {"dk", dk, wantK}, {"dv", dv, wantV}} {
		s.close(g.what, s.numbers(g.got), g.want)
	}
}

// attentionInput places the vectors on the device. With as many queries as keys, they are in rows
// [q|k|v], as in training. Otherwise they are separate, as in a KV cache.
func (s *suite) attentionInput(c *sequences, d device.Dropout) device.AttentionInput {
	in := device.AttentionInput{Batch: c.batch, Queries: c.queries, Keys: c.keys, Dropout: d}
	width := c.Heads * c.HeadSize
	if c.queries == c.keys {
		in.Q, in.K, in.V = s.packed(c.stored, c.q, c.k, c.v, width, false)
		return in
	}
	in.Q = s.matrixOf(c.stored, c.q, c.batch*c.queries, width, padded, false)
	in.K = s.matrixOf(c.stored, c.k, c.batch*c.keys, width, padded, false)
	in.V = s.matrixOf(c.stored, c.v, c.batch*c.keys, width, padded, false)
	return in
}

// packed returns three matrices of equal width that share rows.
func (s *suite) packed(kind device.Type, q, k, v []float32, width int, free bool) (mq, mk, mv device.Matrix) {
	rows := len(q) / width
	joint := make([]float32, 0, 3*len(q))
	for i := range rows {
		for _, part := range [][]float32{q, k, v} {
			joint = append(joint, part[i*width:][:width]...)
		}
	}
	m := s.matrixOf(kind, joint, rows, 3*width, whole, free)
	return m.Sub(0, rows, 0, width), m.Sub(0, rows, width, 2*width), m.Sub(0, rows, 2*width, 3*width)
}
