package nn

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// Generator continues sequences of tokens with a GPT. It keeps the keys and values
// of all tokens in the context, so that one more token is one row through the
// model; and it has memory of its own, so that it can be used in the middle of a
// training. It serves one sequence, and allocates nothing after it was made.
//
// What it returns depends on the last Context tokens alone, the first of them at
// place 0: what nanoGPT's generate feeds its model. When the context is full, each
// further token moves all others by a place, and nothing that was computed before
// holds: it takes Context rows through the model. KeepHalf avoids that.
type Generator struct {
	// KeepHalf forgets more than needed when the context is full: all but the last
	// half of it, or all but the tokens being fed if these are more. Half a context
	// of tokens then costs one row each, after one time half a context of rows. What
	// is returned then depends on how many tokens were fed at a time.
	KeepHalf bool

	model     *GPT
	device    device.Device
	precision device.Precision
	attention device.Attention
	window    []int32 // the tokens in the context
	answer    []float32

	keys, values                   []device.Tensor // of each block: [context, width]
	tokens                         device.Tensor   // those being fed
	x, normed, queries, attended   device.Tensor   // [context, width]
	hidden                         device.Tensor   // [context, 4*width]
	mean, rstd, logSum, lastLogits device.Tensor
}

// NewGenerator returns a generator without a sequence yet. The parameters of the
// model must have their memory on d when tokens are fed; nothing else of the model
// is used, so it needs no Plan.
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

// Feed appends tokens, at least one, to the sequence and returns the logits of the
// token after the last one: Vocabulary numbers, which the next call overwrites.
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
		tokens = g.forget(tokens)
		held = 0
	}
	g.window = append(g.window, tokens...)
	g.forward(held)
	return g.answer
}

// forget leaves in the window what precedes tokens from now on, and returns those
// of them that are in the context.
func (g *Generator) forget(tokens []int32) []int32 {
	keep := g.model.Context
	if g.KeepHalf {
		keep = min(keep, max(keep/2, len(tokens)))
	}
	tokens = tokens[max(0, len(tokens)-keep):]
	before := g.window[len(g.window)-(keep-len(tokens)):]
	g.window = g.window[:copy(g.window, before)]
	return tokens
}

// forward computes the rows of the window from place first on, and the logits of
// the last.
func (g *Generator) forward(first int) {
	m, d := g.model, g.device
	rows := len(g.window) - first
	x := device.Rows(g.x, rows, m.Width)
	tokens := g.tokens.Slice(0, rows)
	d.WriteInts(tokens, g.window[first:])
	d.Embed(x, tokens, m.embedding.tokens.matrix(m.embedding.tokens.Data), m.embedding.places.matrix(m.embedding.places.Data), rows, first)
	for i := range m.blocks {
		g.block(i, x, first)
	}
	last := device.Rows(g.normed, 1, m.Width)
	g.normalise(last, x.Sub(rows-1, rows, 0, m.Width), m.last)
	d.MatMul(device.Product{C: device.Rows(g.lastLogits, 1, m.Vocabulary), A: last, B: m.head.weight.matrix(m.head.weight.Data).T(), Precision: g.precision})
	d.Read(g.answer, g.lastLogits)
}

// block takes rows from place first on through block i, in place. Their keys and
// values go where those of the places before them are.
func (g *Generator) block(i int, x device.Matrix, first int) {
	b, d, width, end := g.model.blocks[i], g.device, x.Cols, first+x.Rows
	narrow := func(t device.Tensor) device.Matrix { return device.Rows(t, x.Rows, width) }
	normed, queries, attended := narrow(g.normed), narrow(g.queries), narrow(g.attended)
	keys, values := device.Rows(g.keys[i], end, width), device.Rows(g.values[i], end, width)

	g.normalise(normed, x, b.ln1)
	for part, y := range [...]device.Matrix{queries, keys.Sub(first, end, 0, width), values.Sub(first, end, 0, width)} {
		d.MatMul(g.product(y, normed, b.attn.qkv, part*width))
	}
	g.attention.Forward(attended, g.logSum.Slice(0, x.Rows*g.model.Heads),
		device.AttentionInput{Q: queries, K: keys, V: values, Batch: 1, Queries: x.Rows, Keys: end})
	d.MatMul(g.product(normed, attended, b.attn.proj, 0))
	d.Add(x.Data, x.Data, normed.Data)

	g.normalise(normed, x, b.ln2)
	hidden := device.Rows(g.hidden, x.Rows, 4*width)
	up := g.product(hidden, normed, b.fc, 0)
	up.Activation, up.Pre = device.GELU, hidden
	d.MatMul(up)
	d.MatMul(g.product(normed, hidden, b.proj, 0))
	d.Add(x.Data, x.Data, normed.Data)
}

func (g *Generator) normalise(y, x device.Matrix, l *layerNorm) {
	g.device.LayerNorm(y, g.mean.Slice(0, x.Rows), g.rstd.Slice(0, x.Rows), x, l.weight.Data, l.bias.Data)
}

// product is those of a layer's outputs that begin at one of them, as many as y has
// columns.
func (g *Generator) product(y, x device.Matrix, l *linear, left int) device.Product {
	right := left + y.Cols
	return device.Product{C: y, A: x, B: l.inByOut(l.weight.Data).Sub(0, l.in, left, right), Bias: l.bias.Data.Slice(left, right), Precision: g.precision}
}
