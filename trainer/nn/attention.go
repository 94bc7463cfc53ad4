package nn

import (
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// selfAttention is GPT-2's attention: one projection of the input to queries, keys, and values,
// causal multi-head attention, and an output projection.
type selfAttention struct {
	qkv, proj    *linear
	heads, width int
	dropout      float32
	site         uint64
	op           device.Attention

	packed, out device.Tensor // of the last Forward: [rows, 3*width], [rows, width]
	logSum      device.Tensor
}

func newSelfAttention(prefix string, o GPTOptions, site uint64) *selfAttention {
	return &selfAttention{
		qkv:   newConv1D(prefix+"c_attn.", o.Width, 3*o.Width),
		proj:  newConv1D(prefix+"c_proj.", o.Width, o.Width),
		heads: o.Heads, width: o.Width, dropout: float32(o.Dropout), site: site,
	}
}

// plan allocates memory. All layers share op.
func (l *selfAttention) plan(p Plan, op device.Attention) {
	l.qkv.Plan(p)
	l.proj.Plan(p)
	l.op = op
	l.packed, l.out = p.alloc(p.rows*3*l.width), p.alloc(p.rows*l.width)
	l.logSum = p.Device.Alloc(device.Float32, p.rows*l.heads)
}

// split returns the queries, keys, and values in t, whose rows hold all three.
func (l *selfAttention) split(t device.Tensor, rows int) (q, k, v device.Matrix) {
	m, w := device.Rows(t, rows, 3*l.width), l.width
	return m.Sub(0, rows, 0, w), m.Sub(0, rows, w, 2*w), m.Sub(0, rows, 2*w, 3*w)
}

func (l *selfAttention) input(s sequences, pass Pass) device.AttentionInput {
	q, k, v := l.split(l.packed, s.rows())
	in := device.AttentionInput{Q: q, K: k, V: v, Batch: s.samples, Queries: s.length, Keys: s.length}
	if pass.Train && l.dropout > 0 {
		in.Dropout = pass.dropout(l.dropout, l.site, l.heads*s.length*s.length)
	}
	return in
}

func (l *selfAttention) forward(y, x device.Matrix, s sequences, pass Pass) {
	l.qkv.Forward(device.Rows(l.packed, s.rows(), 3*l.width), x, pass)
	out := device.Rows(l.out, s.rows(), l.width)
	l.op.Forward(out, l.logSum, l.input(s, pass))
	l.proj.Forward(y, out, pass)
}

// backward writes the gradient of x to dx. dpacked is scratch memory of three times its size.
func (l *selfAttention) backward(dx, dy, x device.Matrix, dpacked device.Tensor, s sequences, pass Pass, ready func(*Param)) {
	out := device.Rows(l.out, s.rows(), l.width)
	l.proj.gradients(dy, out, pass, ready)
	l.proj.Backward(dx, dy, out, dy, pass)
	dq, dk, dv := l.split(dpacked, s.rows())
	l.op.Backward(dq, dk, dv, dx, out, l.logSum, l.input(s, pass))
	d := device.Rows(dpacked, s.rows(), 3*l.width)
	l.qkv.gradients(d, x, pass, ready)
	l.qkv.Backward(dx, d, x, d, pass)
}

// sequences describes how the rows of a batch of tokens form sequences.
type sequences struct{ samples, length int }

func (s sequences) rows() int { return s.samples * s.length }
