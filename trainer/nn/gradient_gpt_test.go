package nn

import (
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

var smallGPT = GPTOptions{Vocabulary: 7, Context: 5, Layers: 2, Heads: 2, Width: 6}

func ignore(*Param) {}

// TestLayerNormGradients compares outputs and gradients of a layer normalization with float64 and
// finite differences.
func TestLayerNormGradients(t *testing.T) {
	for _, width := range []int{1, 6, 37} {
		l := newLayerNorm("", width)
		checked{
			rows: 4, in: width, out: width, params: l.Params(), plan: l.Plan,
			forward: func(y, x device.Matrix, pass Pass) { l.forward(y, x, pass) },
			backward: func(dx, dy, x, _ device.Matrix, pass Pass) {
				l.backward(dx, device.Tensor{}, dy, x, false, pass, ignore)
			},
			reference: func(x []float64, params [][]float64) []float64 { return layerNorm64(x, params[0], params[1]) },
		}.run(t, cpu.New(1), Pass{Train: true, Weight: 1})
	}
}

// TestSelfAttentionGradients compares outputs and gradients of self-attention with float64 and
// finite differences, with and without dropout.
func TestSelfAttentionGradients(t *testing.T) {
	for _, p := range []float64{0, 0.3} {
		o := smallGPT
		o.Dropout = p
		l := newSelfAttention("", o, 2)
		d, pass, s := cpu.New(1), Pass{Train: true, Weight: 1, Seed: 5, First: 1, Stride: 2}, sequences{2, 4}
		mask := masks(d, p, pass)
		var dpacked device.Tensor
		checked{
			rows: s.rows(), in: o.Width, out: o.Width, params: append(l.qkv.Params(), l.proj.Params()...),
			plan: func(p Plan) {
				l.plan(p, d.NewAttention(device.AttentionShape{Heads: o.Heads, HeadSize: o.Width / o.Heads, MaxLength: o.Context}))
				dpacked = d.Alloc(device.Float32, p.rows*3*o.Width)
			},
			forward: func(y, x device.Matrix, pass Pass) { l.forward(y, x, s, pass) },
			backward: func(dx, dy, x, _ device.Matrix, pass Pass) {
				l.backward(dx, dy, x, dpacked, s, pass, ignore)
			},
			reference: func(x []float64, params [][]float64) []float64 { return selfAttention64(l, x, params, s, mask) },
		}.run(t, d, pass)
	}
}

// TestBlockGradients compares outputs and gradients of a transformer block with float64 and finite
// differences, with and without dropout.
func TestBlockGradients(t *testing.T) {
	for _, p := range []float64{0, 0.3} {
		o := smallGPT
		o.Dropout = p
		b := newBlock("", o, 4)
		d, pass, s := cpu.New(1), Pass{Train: true, Weight: 1, Seed: 5, First: 1, Stride: 2}, sequences{2, 4}
		mask := masks(d, p, pass)
		var scratch device.Tensor
		var w workspace
		next := newLayerNorm("", o.Width)
		AllocValues(d, next.params)
		checked{
			rows: s.rows(), in: o.Width, out: o.Width, params: b.params(),
			plan: func(p Plan) {
				b.plan(p, d.NewAttention(device.AttentionShape{Heads: o.Heads, HeadSize: o.Width / o.Heads, MaxLength: o.Context}))
				scratch = d.Alloc(device.Float32, p.rows*o.Width)
				w.plan(p, o.Width)
				next.Plan(p)
			},
			forward: func(y, x device.Matrix, pass Pass) {
				inout := device.Rows(scratch, x.Rows, x.Cols)
				b.ln1.forward(device.Rows(b.normed1, x.Rows, x.Cols), x, pass)
				b.forward(y, x, inout, next, inout, s, pass)
			},
			backward: func(dx, dy, x, _ device.Matrix, pass Pass) {
				d.Copy(dx.Data, dy.Data)
				b.backward(dx, device.Tensor{}, x, s, &w, pass, ignore)
			},
			reference: func(x []float64, params [][]float64) []float64 { return block64(b, x, params, s, mask) },
		}.run(t, d, pass)
	}
}

// TestEmbeddingGradients checks outputs and gradients of the embedding, with repeated tokens and
// from a later position.
func TestEmbeddingGradients(t *testing.T) {
	o := smallGPT
	l := newEmbedding(o)
	d, s := cpu.New(1), sequences{2, 3}
	l.device = d
	params := placeRandom(d, []*Param{l.tokens, l.positions})
	tokens := []int32{1, 6, 1, 0, 1, 5}
	y, dy := device.Rows(d.Alloc(device.Float32, s.rows()*o.Width), s.rows(), o.Width), fill(s.rows()*o.Width, 2)
	ids := putInts(d, tokens)
	l.forward(y, ids, s, 0, Pass{})
	loss := func() (sum float64) {
		for i, v := range embedding64(tokens, s.length, o.Width, params[0], params[1]) {
			sum += float64(dy[i]) * v
		}
		return sum
	}
	var want []float32
	for _, v := range embedding64(tokens, s.length, o.Width, params[0], params[1]) {
		want = append(want, float32(v))
	}
	sameBits(t, "output", get(d, y.Data), want)
	d.Write(l.positions.Grad, fill(l.positions.Len(), 9)) // must be overwritten
	l.backward(device.Rows(put(d, dy), s.rows(), o.Width), ids, s, Pass{Train: true, Weight: 1}, ignore)
	checkGradient(t, "tokens", get(d, l.tokens.Grad), params[0], loss)
	checkGradient(t, "places", get(d, l.positions.Grad), params[1], loss)

	l.forward(device.Rows(y.Data, 2, o.Width), putInts(d, []int32{4, 2}), sequences{1, 2}, 3, Pass{})
	places := get(d, l.positions.Data)[3*o.Width:]
	table := get(d, l.tokens.Data)
	want = want[:0]
	for i := range 2 * o.Width {
		want = append(want, table[[2]int{4, 2}[i/o.Width]*o.Width+i%o.Width]+places[i])
	}
	sameBits(t, "output from place 3 on", get(d, y.Data)[:2*o.Width], want)
}

// TestHeadGradients checks loss and gradients of the head for chunks of any size. The head
// processes rows in chunks and sums the results.
func TestHeadGradients(t *testing.T) {
	for _, chunk := range []int{1, 3, 5, 100} {
		const rows, width, vocabulary = 5, 6, 7
		d := cpu.New(1)
		h := head{weight: newParam("wte.weight", vocabulary, width)}
		params := placeRandom(d, []*Param{h.weight})
		h.Plan(Plan{Device: d, Batch: rows, Train: true, rows: rows})
		h.chunk = min(h.chunk, chunk)
		labels := []int32{0, 6, 2, 2, 5}
		x := fill(rows*width, 1)
		x64 := widen(x)
		loss := func() float64 { return head64(x64, labels, params[0], width) }
		dx := d.Alloc(device.Float32, rows*width)
		out := h.forward(device.Rows(put(d, x), rows, width), device.Rows(dx, rows, width), putInts(d, labels), Pass{Train: true, Weight: 1})
		checkRelative(t, "loss", out.Loss, loss(), 1e-6)
		if out.Count != rows {
			t.Errorf("count %d, want %d", out.Count, rows)
		}
		checkGradient(t, "weight", get(d, h.weight.Grad), params[0], loss)
		checkGradient(t, "input", get(d, dx), x64, loss)
	}
}
