package nn

import (
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// block is a transformer block of GPT-2: h = x + attention(ln_1(x)), then h + mlp(ln_2(h)), with
// dropout before each sum.
type block struct {
	ln1, ln2 *layerNorm
	attn     *selfAttention
	fc, proj *linear // the MLP, with GELU between
	width    int
	dropout  float32
	site     uint64 // dropout site after attention; the site after the MLP is the next one
	device   device.Device

	// Activations of the last Forward. Sums and their gradients are Float32; all others have the
	// type that the device stores.
	normed1, middle, normed2 device.Tensor // [rows, width]; middle is a sum
	pre, hidden              device.Tensor // [rows, 4*width]: before and after GELU
}

// sitesPerBlock is the number of dropout sites of a block.
const sitesPerBlock = 3

func newBlock(prefix string, o GPTOptions, site uint64) *block {
	return &block{
		ln1:   newLayerNorm(prefix+"ln_1.", o.Width),
		attn:  newSelfAttention(prefix+"attn.", o, site),
		ln2:   newLayerNorm(prefix+"ln_2.", o.Width),
		fc:    newConv1D(prefix+"mlp.c_fc.", o.Width, 4*o.Width),
		proj:  newConv1D(prefix+"mlp.c_proj.", 4*o.Width, o.Width),
		width: o.Width, dropout: float32(o.Dropout), site: site + 1,
	}
}

func (b *block) params() []*Param {
	var list []*Param
	for _, l := range []interface{ Params() []*Param }{b.ln1, b.attn.qkv, b.attn.proj, b.ln2, b.fc, b.proj} {
		list = append(list, l.Params()...)
	}
	return list
}

// init initializes the block like Hugging Face's _init_weights when it is applied to the block,
// children first. The weights of output projections are initialized twice: as any other, and then
// again by their parents, with a smaller deviation.
func (b *block) init(g *random.Generator, m device.Memory, deviation, narrow float64) {
	b.ln1.Init(g, m)
	b.attn.qkv.initNormal(g, m, deviation)
	b.attn.proj.initNormal(g, m, deviation)
	b.attn.proj.initNormal(g, m, narrow)
	b.ln2.Init(g, m)
	b.fc.initNormal(g, m, deviation)
	b.proj.initNormal(g, m, deviation)
	b.proj.initNormal(g, m, narrow)
}

func (b *block) plan(p Plan, op device.Attention) {
	b.device = p.Device
	b.ln1.Plan(p)
	b.attn.plan(p, op)
	b.ln2.Plan(p)
	b.fc.Plan(p)
	b.proj.Plan(p)
	b.normed1, b.normed2 = p.alloc(p.rows*b.width), p.alloc(p.rows*b.width)
	b.middle = p.Device.Alloc(device.Float32, p.rows*b.width)
	b.pre, b.hidden = p.alloc(p.rows*4*b.width), p.alloc(p.rows*4*b.width)
}

// forward writes the block's output to y, and the output normalized by next to normed. scratch has
// the size of y; normed may be scratch. x is already normalized, in normed1.
func (b *block) forward(y, x, scratch device.Matrix, next *layerNorm, normed device.Matrix, s sequences, pass Pass) {
	narrow := func(t device.Tensor) device.Matrix { return device.Rows(t, x.Rows, b.width) }
	wide := func(t device.Tensor) device.Matrix { return device.Rows(t, x.Rows, 4*b.width) }
	b.attn.forward(scratch, narrow(b.normed1), s, pass)
	b.drop(scratch, b.site, s, pass)
	b.ln2.forwardSum(narrow(b.normed2), narrow(b.middle), x, scratch, pass)
	b.fc.forwardActivated(wide(b.hidden), wide(b.pre), narrow(b.normed2), device.GELU, pass)
	b.proj.Forward(scratch, wide(b.hidden), pass)
	b.drop(scratch, b.site+1, s, pass)
	next.forwardSum(normed, y, narrow(b.middle), scratch, pass)
}

// backward replaces the gradient of the output in d by the gradient of x. branchCopy, unless it is
// empty, contains a copy of d. backward copies the gradient of x to copied, unless it is empty.
func (b *block) backward(d device.Matrix, copied device.Tensor, x device.Matrix, s sequences, w *workspace, pass Pass, ready func(*Param)) {
	narrow := func(t device.Tensor) device.Matrix { return device.Rows(t, x.Rows, b.width) }
	wide := func(t device.Tensor) device.Matrix { return device.Rows(t, x.Rows, 4*b.width) }
	inner, dhidden := narrow(w.inner), wide(w.wide)

	branch := b.branchGrad(w, d, b.site+1, s, pass)
	b.proj.gradients(branch, wide(b.hidden), pass, ready)
	b.proj.backwardGELU(dhidden, branch, wide(b.pre), pass)
	b.fc.gradients(dhidden, narrow(b.normed2), pass, ready)
	b.fc.Backward(inner, dhidden, inner, dhidden, pass)
	b.ln2.backward(d, b.branchCopy(w, x.Rows, pass), inner, narrow(b.middle), true, pass, ready)

	branch = b.branchGrad(w, d, b.site, s, pass)
	b.attn.backward(inner, branch, narrow(b.normed1), w.wide, s, pass, ready)
	b.ln1.backward(d, copied, inner, x, true, pass, ready)
}

// drops reports whether the pass applies dropout.
func (b *block) drops(pass Pass) bool { return pass.Train && b.dropout > 0 }

// drop applies dropout to x.
func (b *block) drop(x device.Matrix, site uint64, s sequences, pass Pass) {
	if b.drops(pass) {
		b.device.Dropout(x.Data, x.Data, pass.dropout(b.dropout, site, s.length*b.width))
	}
}

// branchGrad returns the gradient of the output of attention or of the MLP, before dropout, in the
// type that the device stores. d is the gradient of the sum to which this output was added.
func (b *block) branchGrad(w *workspace, d device.Matrix, site uint64, s sequences, pass Pass) device.Matrix {
	branch := device.Rows(w.branch, d.Rows, b.width)
	switch {
	case b.drops(pass):
		b.device.Dropout(branch.Data, d.Data, pass.dropout(b.dropout, site, s.length*b.width))
	case branch.Data.Type() == d.Data.Type():
		return d
	}
	return branch // without dropout, the normalization that computed d has copied it
}

// branchCopy returns the memory to which a normalization must copy the gradient of a sum for
// branchGrad. It is empty if branchGrad needs no copy.
func (b *block) branchCopy(w *workspace, rows int, pass Pass) device.Tensor {
	if b.drops(pass) || w.branch.Type() == device.Float32 {
		return device.Tensor{}
	}
	return w.branch.Slice(0, rows*b.width)
}

// workspace is scratch memory for gradients, shared by all blocks.
type workspace struct {
	inner, branch device.Tensor // [rows, width]
	wide          device.Tensor // [rows, 4*width]
}

func (w *workspace) plan(p Plan, width int) {
	w.inner, w.branch, w.wide = p.alloc(p.rows*width), p.alloc(p.rows*width), p.alloc(p.rows*4*width)
}
