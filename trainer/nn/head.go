package nn

import "github.com/ddpbatch/ddpbatch/trainer/device"

// head computes the loss from the last rows: logits, with the weight that it shares with the token
// embedding, and their cross-entropy. Logits are the largest tensor in a step of a small GPT.
// Therefore head computes them for a chunk of rows at a time and immediately replaces them by their
// gradient, like llm.c's fused classifier.
type head struct {
	weight     *Param // [vocabulary, width]
	params     []*Param
	plan       Plan
	logits     device.Tensor // [chunk, vocabulary]
	bf16Weight device.Tensor // the weight in the type that matmuls read, unless its owner rounds it
	chunk      int           // rows
	tally      tally
}

// The maximum number of logits in memory: 64 MiB of Float32 and 1.5 GiB of BFloat16. Each chunk
// reads the weight twice and its gradient once, which is expensive compared with matmuls on tensor
// cores. For GPT-2, the latter are 16,384 rows, so that the matmuls also have enough tiles for all
// multiprocessors of a large GPU. A tile has 128 rows. The numbers do not depend on the GPU or its free
// memory: the weight's gradient is the sum over the chunks, so its bits depend on the number of rows.
const (
	maxLogits       = 16 << 20
	maxNarrowLogits = 16384 * 50304
	tileRows        = 128
)

func (h *head) Plan(p Plan) {
	h.plan = p
	vocabulary := h.weight.Shape[0]
	h.chunk = max(1, maxLogits/vocabulary)
	h.bf16Weight = device.Tensor{}
	if p.Device.Stored(p.Precision) == device.BFloat16 {
		h.chunk = max(1, maxNarrowLogits/vocabulary/tileRows) * tileRows
		if h.weight.operand().Type() != device.BFloat16 {
			h.bf16Weight = p.alloc(h.weight.Len())
		}
	}
	h.chunk = min(p.rows, h.chunk)
	h.logits = p.alloc(h.chunk * vocabulary)
	h.tally.plan(p.Device, p.rows)
}

// forward returns the loss of the rows of x. In training it writes their gradient to dx, and writes
// or adds the weight's gradient to its Grad.
func (h *head) forward(x, dx device.Matrix, labels device.Tensor, pass Pass) Outcome {
	pass.values(h.params)
	if pass.Train {
		pass.grads(h.params)
	}
	d, w := h.plan.Device, h.weight.matrix(h.weight.operand())
	if h.bf16Weight.Len() > 0 {
		d.Cast(h.bf16Weight, h.weight.Data)
		w = h.weight.matrix(h.bf16Weight)
	}
	out := Outcome{Count: x.Rows}
	scale := float32(0)
	if pass.Train {
		scale = pass.Weight / float32(x.Rows)
	}
	for first := 0; first < x.Rows; first += h.chunk {
		end := min(first+h.chunk, x.Rows)
		rows := x.Sub(first, end, 0, x.Cols)
		logits := device.Rows(h.logits, rows.Rows, w.Rows)
		d.MatMul(device.Product{C: logits, A: rows, B: w.T(), Precision: h.plan.Precision})
		out.Correct += h.tally.classify(first, logits, labels.Slice(first, end), scale)
		if pass.Train {
			d.MatMul(device.Product{C: h.weight.matrix(h.weight.Grad), A: logits.T(), B: rows, Accumulate: pass.Accumulate || first > 0, Precision: h.plan.Precision})
			d.MatMul(device.Product{C: dx.Sub(first, end, 0, dx.Cols), A: logits, B: w, Precision: h.plan.Precision})
		}
	}
	out.Loss = h.tally.loss(x.Rows, x.Rows, pass)
	return out
}
