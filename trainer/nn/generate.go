package nn

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// Generator continues token sequences with a GPT. It has a key-value cache for all tokens in the
// context, so that another token is a single row through the model. It has its own memory, so it
// can be used during training. It handles one sequence and allocates nothing after NewGenerator.
//
// The logits depend only on the last Context tokens, the first of them at position 0, like the
// input of nanoGPT's generate. When the context is full, each further token shifts the positions of
// all others, which invalidates the cache: Feed then computes Context rows. KeepHalf avoids that.
type Generator struct {
	// KeepHalf discards more tokens than necessary when the context is full: all but the last half
	// of the context, or all but the tokens being fed if these are more. Then Feed computes half a
	// context of rows once, and the following half context of tokens needs one row each. The logits
	// then depend on how many tokens were fed at a time.
	KeepHalf bool

	model     *GPT
	device    device.Device
	precision device.Precision
	attention device.Attention
	window    []int32 // tokens in the context
	answer    []float32

	keys, values                   []device.Tensor // of each block: [context, width]
	tokens                         device.Tensor   // tokens being fed
	x, normed, queries, attended   device.Tensor   // [context, width]
	hidden                         device.Tensor   // [context, 4*width]
	mean, rstd, logSum, lastLogits device.Tensor
}

// NewGenerator returns a generator with an empty sequence. The model's parameters must have memory
// on d when tokens are fed. The generator uses no other state of the model, which needs no Plan.
func (m *GPT) NewGenerator(d device.Device, p device.Precision) *Generator {
	rows := func(width int) device.Tensor { return d.Alloc(device.Float32, m.Context*width) }
	attention := func() device.Tensor { return d.Alloc(d.Stored(p), m.Context*m.Width) }
	g := &Generator{
		model: m, device: d, precision: p,
		attention: d.NewAttention(device.AttentionShape{Heads: m.Heads, HeadSize: m.Width / m.Heads, MaxLength: m.Context, Precision: p}),
		window:    make([]int32, 0, m.Context), answer: make([]float32, m.Vocabulary),
		tokens: d.Alloc(device.Int32, m.Context),
		x:      rows(m.Width), normed: rows(m.Width), queries: attention(), attended: attention(),
		hidden: rows(4 * m.Width),
		mean:   rows(1), rstd: rows(1), logSum: rows(m.Heads),
		lastLogits: d.Alloc(device.Float32, m.Vocabulary),
	}
	for range m.blocks {
		g.keys, g.values = append(g.keys, attention()), append(g.values, attention())
	}
	return g
}

// Feed appends at least one token to the sequence and returns the logits of the next token:
// Vocabulary values, valid until the next call.
func (g *Generator) Feed(tokens []int32) []float32 {
	if len(tokens) == 0 {
		panic("nn: no tokens to feed")
	}
	for _, t := range tokens {
		if t < 0 || int(t) >= g.model.Vocabulary {
			panic(fmt.Sprintf("nn: token %d of a vocabulary of %d", t, g.model.Vocabulary))
		}
	}
	held := len(g.window)
	if held+len(tokens) > g.model.Context {
		tokens = g.discard(tokens)
		held = 0
	}
	g.window = append(g.window, tokens...)
	g.forward(held)
	return g.answer
}

// discard discards tokens from the window to make space for tokens. It returns the part of tokens
// that fits into the context.
func (g *Generator) discard(tokens []int32) []int32 {
	keep := g.model.Context
	if g.KeepHalf {
		keep = min(keep, max(keep/2, len(tokens)))
	}
	tokens = tokens[max(0, len(tokens)-keep):]
	before := g.window[len(g.window)-(keep-len(tokens)):]
	g.window = g.window[:copy(g.window, before)]
	return tokens
}

// forward computes the rows of the window, starting at position first, and the logits of the last
// row.
func (g *Generator) forward(first int) {
	m, d := g.model, g.device
	rows := len(g.window) - first
	x := device.Rows(g.x, rows, m.Width)
	tokens := g.tokens.Slice(0, rows)
	d.WriteInts(tokens, g.window[first:])
	d.Embed(x, tokens, m.embedding.tokens.matrix(m.embedding.tokens.Data), m.embedding.positions.matrix(m.embedding.positions.Data), rows, first)
	for i := range m.blocks {
		g.block(i, x, first)
	}
	last := device.Rows(g.normed, 1, m.Width)
	g.normalize(last, x.Sub(rows-1, rows, 0, m.Width), m.last)
	d.MatMul(device.Product{C: device.Rows(g.lastLogits, 1, m.Vocabulary), A: last, B: m.head.weight.matrix(m.head.weight.Data).T(), Precision: g.precision})
	d.Read(g.answer, g.lastLogits)
}

// block computes block i in place for rows at position first and later. It appends their keys and
// values to the cache.
func (g *Generator) block(i int, x device.Matrix, first int) {
	b, d, width, end := g.model.blocks[i], g.device, x.Cols, first+x.Rows
	narrow := func(t device.Tensor) device.Matrix { return device.Rows(t, x.Rows, width) }
	normed, queries, attended := narrow(g.normed), narrow(g.queries), narrow(g.attended)
	keys, values := device.Rows(g.keys[i], end, width), device.Rows(g.values[i], end, width)

	g.normalize(normed, x, b.ln1)
	for part, y := range [...]device.Matrix{queries, keys.Sub(first, end, 0, width), values.Sub(first, end, 0, width)} {
		d.MatMul(g.product(y, normed, b.attn.qkv, part*width))
	}
	g.attention.Forward(attended, g.logSum.Slice(0, x.Rows*g.model.Heads),
		device.AttentionInput{Q: queries, K: keys, V: values, Batch: 1, Queries: x.Rows, Keys: end})
	d.MatMul(g.product(normed, attended, b.attn.proj, 0))
	d.Add(x.Data, x.Data, normed.Data)

	g.normalize(normed, x, b.ln2)
	hidden := device.Rows(g.hidden, x.Rows, 4*width)
	up := g.product(hidden, normed, b.fc, 0)
	up.Activation, up.Pre = device.GELU, hidden
	d.MatMul(up)
	d.MatMul(g.product(normed, hidden, b.proj, 0))
	d.Add(x.Data, x.Data, normed.Data)
}

func (g *Generator) normalize(y, x device.Matrix, l *layerNorm) {
	g.device.LayerNorm(y, g.mean.Slice(0, x.Rows), g.rstd.Slice(0, x.Rows), x, l.weight.Data, l.bias.Data)
}

// product returns the matmul for a range of the outputs of a layer with a transposed weight: from left,
// as many as y has columns. It does not read [Param.Rounded], which is current only during a step.
func (g *Generator) product(y, x device.Matrix, l *linear, left int) device.Product {
	right := left + y.Cols
	return device.Product{C: y, A: x, B: l.weight.matrix(l.weight.Data).Sub(0, l.in, left, right), Bias: l.bias.Data.Slice(left, right), Precision: g.precision}
}
