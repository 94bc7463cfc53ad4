package cpu

import (
	"fmt"
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/gemm"
	"github.com/ddpbatch/ddpbatch/trainer/vec"
)

// queryBlock is the number of queries whose weights are in memory at the same time. For 1,024 keys
// their scores take 256 KiB, so that the L2 cache holds them together with keys and values. On the
// diagonal, half of each block is computed although the mask hides it.
const queryBlock = 64

// attention is planned causal attention, divided among threads by samples and heads.
type attention struct {
	device.AttentionShape
	device     *Device
	scale      float32
	workspaces []*attentionWorkspace // one per thread

	// The operation in progress.
	in               device.AttentionInput
	out              device.Matrix
	logSum           []float32
	backward         bool
	dq, dk, dv, dout device.Matrix
	q, k, v, o       []float32
	gq, gk, gv, gOut []float32
}

// attentionWorkspace is the workspace of a thread.
type attentionWorkspace struct {
	products *gemm.Workspace
	queries  []float32 // [queryBlock, HeadSize], scaled
	weights  []float32 // [queryBlock, MaxLength]
	dropped  []float32 // [queryBlock, MaxLength], after dropout
	dweights []float32 // [queryBlock, MaxLength], gradient of weights
}

// NewAttention plans attention. It always allocates the memory of the backward pass, which is
// small.
func (d *Device) NewAttention(s device.AttentionShape) device.Attention {
	if s.Heads < 1 || s.HeadSize < 1 || s.MaxLength < 1 {
		panic(fmt.Sprintf("cpu: attention of shape %+v", s))
	}
	a := &attention{AttentionShape: s, device: d, scale: float32(1 / math.Sqrt(float64(s.HeadSize)))}
	rows := min(queryBlock, s.MaxLength)
	for _, products := range d.perThread() {
		a.workspaces = append(a.workspaces, &attentionWorkspace{
			products: products,
			queries:  make([]float32, rows*s.HeadSize),
			weights:  make([]float32, rows*s.MaxLength),
			dropped:  make([]float32, rows*s.MaxLength),
			dweights: make([]float32, rows*s.MaxLength),
		})
	}
	return a
}

// Forward computes the output.
func (a *attention) Forward(out device.Matrix, logSum device.Tensor, in device.AttentionInput) {
	a.plan(out, logSum, in)
	a.backward = false
	a.run()
}

// Backward computes the gradients of Q, K, and V.
func (a *attention) Backward(dq, dk, dv, dout, out device.Matrix, logSum device.Tensor, in device.AttentionInput) {
	a.plan(out, logSum, in)
	a.backward = true
	a.dq, a.dk, a.dv, a.dout = dq, dk, dv, dout
	a.gq, a.gk, a.gv, a.gOut = dq.Data.Floats(), dk.Data.Floats(), dv.Data.Floats(), dout.Data.Floats()
	for _, m := range []struct{ is, as device.Matrix }{{dq, in.Q}, {dk, in.K}, {dv, in.V}, {dout, out}} {
		if m.is.Rows != m.as.Rows || m.is.Cols != m.as.Cols || m.is.ColStride != 1 {
			panic(fmt.Sprintf("cpu: attention: a gradient is %dx%d, want %dx%d", m.is.Rows, m.is.Cols, m.as.Rows, m.as.Cols))
		}
	}
	a.run()
}

func (a *attention) plan(out device.Matrix, logSum device.Tensor, in device.AttentionInput) {
	if in.Batch < 1 || in.Queries < 1 || in.Keys < in.Queries || in.Keys > a.MaxLength {
		panic(fmt.Sprintf("cpu: attention of %d samples with %d queries and %d keys, planned for %d", in.Batch, in.Queries, in.Keys, a.MaxLength))
	}
	width, queries, keys := a.Heads*a.HeadSize, in.Batch*in.Queries, in.Batch*in.Keys
	for _, m := range []struct {
		is   device.Matrix
		rows int
	}{{in.Q, queries}, {in.K, keys}, {in.V, keys}, {out, queries}} {
		if m.is.Rows != m.rows || m.is.Cols != width || m.is.ColStride != 1 {
			panic(fmt.Sprintf("cpu: attention: a %dx%d matrix with column stride %d, want %dx%d", m.is.Rows, m.is.Cols, m.is.ColStride, m.rows, width))
		}
	}
	a.in, a.out = in, out
	a.q, a.k, a.v, a.o = in.Q.Data.Floats(), in.K.Data.Floats(), in.V.Data.Floats(), out.Data.Floats()
	a.logSum = logSum.Floats()[:in.Batch*a.Heads*in.Queries]
}

func (a *attention) run() {
	units := a.in.Batch * a.Heads
	a.device.pool.do(a, units, units*a.in.Queries*a.in.Keys)
	*a = attention{AttentionShape: a.AttentionShape, device: a.device, scale: a.scale, workspaces: a.workspaces}
}

func (a *attention) part(thread, threads int) {
	first, end := share(a.in.Batch*a.Heads, 1, thread, threads)
	for i := first; i < end; i++ {
		h := head{a, a.workspaces[thread], a.device.unit, i / a.Heads, i % a.Heads}
		if a.backward {
			h.backward()
		} else {
			h.forward()
		}
	}
}

// head is one head of one sample.
type head struct {
	*attention
	*attentionWorkspace
	unit         *vec.Unit
	sample, head int
}

// rows returns the head's part of n rows of m, starting at row first of the sample. data holds the
// elements of m, and each sample has perSample rows.
func (h *head) rows(m device.Matrix, data []float32, perSample, first, n int) gemm.Matrix {
	at := (h.sample*perSample+first)*m.RowStride + h.head*h.HeadSize
	return gemm.Matrix{Data: data[at:], Rows: n, Cols: h.HeadSize, RowStride: m.RowStride, ColStride: 1}
}

// block is a range of queries, with the number of keys that the last of them attends to.
type block struct{ first, n, keys int }

// visibleKeys returns the number of keys that row i of the block attends to.
func (b block) visibleKeys(i int) int { return b.keys - b.n + 1 + i }

func (h *head) block(first int) block {
	n := min(queryBlock, h.in.Queries-first)
	return block{first, n, first + n + h.in.Keys - h.in.Queries}
}

// scores stores the scaled scores of the block's queries and keys in weights. It scales the
// queries, because they have fewer elements than the scores. The backward pass does the same and
// gets the same bits.
func (h *head) scores(b block) {
	q := h.rows(h.in.Q, h.q, h.in.Queries, b.first, b.n)
	for i := range b.n {
		h.unit.Scale(h.queries[i*h.HeadSize:(i+1)*h.HeadSize], q.Data[i*q.RowStride:][:h.HeadSize], h.scale)
	}
	multiply(h.products, h.Precision, gemm.Dense(h.weights[:b.n*b.keys], b.n, b.keys),
		gemm.Dense(h.queries[:b.n*h.HeadSize], b.n, h.HeadSize),
		h.rows(h.in.K, h.k, h.in.Keys, 0, b.keys).T(), gemm.Zero())
}

// sums returns the log-sum-exp values of the block.
func (h *head) sums(b block) []float32 {
	return h.logSum[(h.sample*h.Heads+h.head)*h.in.Queries+b.first:][:b.n]
}

// dropRow applies dropout to the weights of row i of a block.
func (h *head) dropRow(y, x []float32, b block, i int) {
	at := (h.head*h.in.Queries + b.first + i) * h.in.Keys
	drop(h.unit, y, x, h.in.Dropout, h.sample, at)
}

func (h *head) forward() {
	for first := 0; first < h.in.Queries; first += queryBlock {
		b := h.block(first)
		h.scores(b)
		sums := h.sums(b)
		var inverse [queryBlock]float32
		for i := range b.n {
			row, seen := h.weights[i*b.keys:(i+1)*b.keys], b.visibleKeys(i)
			most := h.unit.Max(row[:seen])
			sum := h.unit.ExpSum(row[:seen], row[:seen], most)
			clear(row[seen:])
			sums[i] = float32(float64(most) + math.Log(float64(sum)))
			inverse[i] = 1 / sum
			if h.in.Dropout.P > 0 {
				h.dropRow(row[:seen], row[:seen], b, i)
			}
		}
		out := h.rows(h.out, h.o, h.in.Queries, b.first, b.n)
		multiply(h.products, h.Precision, out, gemm.Dense(h.weights[:b.n*b.keys], b.n, b.keys), h.rows(h.in.V, h.v, h.in.Keys, 0, b.keys), gemm.Zero())
		for i := range b.n {
			row := out.Data[i*out.RowStride:][:h.HeadSize]
			h.unit.Scale(row, row, inverse[i])
		}
	}
}

func (h *head) backward() {
	keys := h.in.Keys
	dk, dv := h.rows(h.dk, h.gk, keys, 0, keys), h.rows(h.dv, h.gv, keys, 0, keys)
	for i := range keys {
		clear(dk.Data[i*dk.RowStride:][:h.HeadSize])
		clear(dv.Data[i*dv.RowStride:][:h.HeadSize])
	}
	for first := 0; first < h.in.Queries; first += queryBlock {
		h.backwardBlock(h.block(first), dk, dv)
	}
}

// backwardBlock computes dQ of the block's queries and adds to dK and dV.
func (h *head) backwardBlock(b block, dk, dv gemm.Matrix) {
	h.scores(b)
	size := b.n * b.keys
	weights, dweights := gemm.Dense(h.weights[:size], b.n, b.keys), gemm.Dense(h.dweights[:size], b.n, b.keys)
	out, dout := h.rows(h.out, h.o, h.in.Queries, b.first, b.n), h.rows(h.dout, h.gOut, h.in.Queries, b.first, b.n)
	multiply(h.products, h.Precision, dweights, dout, h.rows(h.in.V, h.v, h.in.Keys, 0, b.keys).T(), gemm.Zero())
	used := weights
	if h.in.Dropout.P > 0 {
		used = gemm.Dense(h.dropped[:size], b.n, b.keys)
	}
	for i, sum := range h.sums(b) {
		seen := b.visibleKeys(i)
		w, dw := weights.Data[i*b.keys:][:b.keys], dweights.Data[i*b.keys:][:b.keys]
		h.unit.ExpSum(w[:seen], w[:seen], sum)
		clear(w[seen:])
		if h.in.Dropout.P > 0 {
			row := used.Data[i*b.keys:][:b.keys]
			h.dropRow(row[:seen], w[:seen], b, i)
			clear(row[seen:])
			h.dropRow(dw[:seen], dw[:seen], b, i)
		}
		delta := h.unit.Dot(dout.Data[i*dout.RowStride:][:h.HeadSize], out.Data[i*out.RowStride:][:h.HeadSize])
		h.unit.SoftmaxGrad(dw[:seen], w[:seen], dw[:seen], delta, 1)
		clear(dw[seen:])
	}
	multiply(h.products, h.Precision, part(dv, b.keys), used.T(), dout, gemm.Accumulate())
	multiply(h.products, h.Precision, part(dk, b.keys), dweights.T(), gemm.Dense(h.queries[:b.n*h.HeadSize], b.n, h.HeadSize), gemm.Accumulate())
	dq := h.rows(h.dq, h.gq, h.in.Queries, b.first, b.n)
	multiply(h.products, h.Precision, dq, dweights, h.rows(h.in.K, h.k, h.in.Keys, 0, b.keys), gemm.Zero())
	for i := range b.n {
		row := dq.Data[i*dq.RowStride:][:h.HeadSize]
		h.unit.Scale(row, row, h.scale)
	}
}

// part returns the first rows of m.
func part(m gemm.Matrix, rows int) gemm.Matrix {
	m.Rows = rows
	return m
}
