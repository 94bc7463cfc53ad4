package nn

import (
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// embedding is GPT-2's embedding: the sum of a row for the token and a row for its position.
type embedding struct {
	tokens, positions *Param // [vocabulary, width], [context, width]
	params            []*Param
	device            device.Device
}

func newEmbedding(o GPTOptions) *embedding {
	tokens, positions := newParam("wte.weight", o.Vocabulary, o.Width), newParam("wpe.weight", o.Context, o.Width)
	return &embedding{tokens: tokens, positions: positions, params: []*Param{tokens, positions}}
}

func (l *embedding) init(g *random.Generator, m device.Memory, deviation float64) {
	for _, p := range l.params {
		device.Fill(m, p.Data, func(v []float32) { g.Normal(0, deviation, v) })
	}
}

// forward writes the rows for tokens. The first token of each sequence has position first.
func (l *embedding) forward(y device.Matrix, tokens device.Tensor, s sequences, first int, pass Pass) {
	pass.values(l.params)
	l.device.Embed(y, tokens, l.tokens.matrix(l.tokens.Data), l.positions.matrix(l.positions.Data), s.length, first)
}

// backward adds to the gradient of the token embedding, to which the head, whose weight is the same
// parameter, has already written. It writes, or with Accumulate adds, the gradient of the position
// embedding.
func (l *embedding) backward(dy device.Matrix, tokens device.Tensor, s sequences, pass Pass, ready func(*Param)) {
	pass.grads(l.params)
	if !pass.Accumulate {
		l.device.Zero(l.positions.Grad)
	}
	l.device.EmbedGrad(l.tokens.matrix(l.tokens.Grad), l.positions.matrix(l.positions.Grad), dy, tokens, s.length)
	ready(l.positions)
	ready(l.tokens)
}
