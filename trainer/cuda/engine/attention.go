//go:build cuda

package engine

import (
	"errors"
	"fmt"
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// maxHeadSize is the largest head that fits the shared memory of a block in attention.cu.
const maxHeadSize = 256

// attention is planned causal attention.
type attention struct {
	device.AttentionShape
	device                      *Device
	scale                       float32
	forward, queryGrad, keyGrad string // kernels
	block                              // their launch configuration
}

// block is the launch configuration of attention kernels: the number of threads, the number of
// vectors, and the bytes of shared memory.
type block struct{ threads, vectors, shared int }

// attentionInput is struct Attention of attention.h.
type attentionInput struct {
	q, k, v                    uint64
	qStride, kStride, vStride  uint64
	dropout                    dropout
	heads, size, queries, keys uint32
	scale                      float32
	_                          uint32
}

// attentionGrads is struct Gradients of attention.h.
type attentionGrads struct {
	dq, dk, dv, dout, out, logSum, delta                uint64
	dqStride, dkStride, dvStride, doutStride, outStride uint64
}

// NewAttention plans attention.
func (d *Device) NewAttention(s device.AttentionShape) device.Attention {
	if s.Heads < 1 || s.HeadSize < 1 || s.HeadSize > maxHeadSize || s.MaxLength < 1 {
		panic(fmt.Sprintf("engine: attention of shape %+v, and heads have at most %d", s, maxHeadSize))
	}
	defer d.enter("attention", s.Heads, s.HeadSize).Leave()
	suffix, block := "", block{128, 32, 4 * (6*32*(s.HeadSize+1) + 2*32*33 + 64)}
	switch size := tensorSize(s.HeadSize); {
	case s.Precision != device.BF16:
	case size == 0:
		suffix = "_bf16"
	case d.loadHopper():
		suffix, block = fmt.Sprintf("_%d_wgmma", size), tensorBlock(256, 128, 64, 2, size)
		block.shared += 1024 // its matrices are aligned to this size
	default:
		suffix, block = fmt.Sprintf("_%d", size), tensorBlock(128, 64, 32, 1, size+8)
	}
	a := &attention{AttentionShape: s, device: d, scale: float32(1 / math.Sqrt(float64(s.HeadSize))), block: block,
		forward: "attention_forward" + suffix, queryGrad: "attention_query_grad" + suffix, keyGrad: "attention_key_grad" + suffix}
	if a.shared > d.shared {
		d.check(fmt.Errorf("its kernels require %d bytes of shared memory, but this GPU supports %d per block", a.shared, d.shared))
	}
	for _, kernel := range []string{a.forward, a.queryGrad, a.keyGrad} {
		f := d.function(kernel)
		d.check(errors.Join(f.AllowShared(max(a.shared, 48<<10)), f.PreferShared()))
	}
	return a
}

// tensorBlock returns the configuration of a block of attention_passes.h with the given number of
// own rows, the given tile size, number of buffers, and row pitch. The shared memory is sized for
// the key gradient, which needs the most.
func tensorBlock(threads, own, tile, buffers, pitch int) block {
	return block{threads, own, 2*(2*own+2*tile*buffers)*pitch + 4*2*tile*buffers}
}

// tensorSize returns the head size of the tensor core kernel that fits the given size, or 0.
func tensorSize(head int) int {
	for _, size := range []int{64, 128} {
		if head <= size {
			return size
		}
	}
	return 0
}

// Forward computes the output.
func (a *attention) Forward(out device.Matrix, logSum device.Tensor, in device.AttentionInput) {
	a.fit(out, logSum, in)
	d := a.device
	defer d.enter("attention", in.Batch, a.Heads, in.Queries, a.HeadSize).Leave()
	input := a.input(in)
	d.args.Reset().Ptr(at(out.Data)).Int64(int64(out.RowStride)).Ptr(floats(logSum))
	driver.Struct(&d.args, &input)
	d.launch(a.forward, a.launch(in, in.Queries))
}

// Backward computes the gradients.
func (a *attention) Backward(dq, dk, dv, dout, out device.Matrix, logSum device.Tensor, in device.AttentionInput) {
	a.fit(out, logSum, in)
	for _, m := range [...]struct{ is, as device.Matrix }{{dq, in.Q}, {dk, in.K}, {dv, in.V}, {dout, out}} {
		if m.is.Rows != m.as.Rows || m.is.Cols != m.as.Cols || m.is.ColStride != 1 || m.is.Data.Type() != m.as.Data.Type() {
			panic(fmt.Sprintf("engine: attention: a gradient is %dx%d of %v, want %dx%d of %v", m.is.Rows, m.is.Cols, m.is.Data.Type(), m.as.Rows, m.as.Cols, m.as.Data.Type()))
		}
	}
	d := a.device
	defer d.enter("attention backward", in.Batch, a.Heads, in.Queries, a.HeadSize).Leave()
	along := d.scratchFor(scratchDelta, 4*in.Batch*a.Heads*in.Queries)
	grads := attentionGrads{
		uint64(at(dq.Data)), uint64(at(dk.Data)), uint64(at(dv.Data)), uint64(at(dout.Data)), uint64(at(out.Data)), uint64(floats(logSum)), uint64(along),
		uint64(dq.RowStride), uint64(dk.RowStride), uint64(dv.RowStride), uint64(dout.RowStride), uint64(out.RowStride),
	}
	input := a.input(in)
	d.args.Reset()
	driver.Struct(&d.args, &input)
	driver.Struct(&d.args, &grads)
	d.launch(a.queryGrad, a.launch(in, in.Queries))
	d.launch(a.keyGrad, a.launch(in, in.Keys))
}

// launch returns the launch of a kernel over n vectors of each head.
func (a *attention) launch(in device.AttentionInput, n int) driver.Launch {
	return driver.Launch{Grid: driver.Dim{X: (n + a.vectors - 1) / a.vectors, Y: a.Heads, Z: in.Batch}, Block: driver.Dim{X: a.threads}, Shared: a.shared}
}

// fit panics unless the matrices match the plan.
func (a *attention) fit(out device.Matrix, logSum device.Tensor, in device.AttentionInput) {
	if in.Batch < 1 || in.Queries < 1 || in.Keys < in.Queries || in.Keys > a.MaxLength || logSum.Len() < in.Batch*a.Heads*in.Queries {
		panic(fmt.Sprintf("engine: attention of %d samples with %d queries and %d keys, planned for %d", in.Batch, in.Queries, in.Keys, a.MaxLength))
	}
	stored := a.device.Stored(a.Precision)
	width, queries, keys := a.Heads*a.HeadSize, in.Batch*in.Queries, in.Batch*in.Keys
	for _, m := range [...]struct {
		is   device.Matrix
		rows int
	}{{in.Q, queries}, {in.K, keys}, {in.V, keys}, {out, queries}} {
		if m.is.Rows != m.rows || m.is.Cols != width || m.is.ColStride != 1 || m.is.Data.Type() != stored {
			panic(fmt.Sprintf("engine: attention: a %dx%d matrix of %v with column stride %d, want %dx%d of %v", m.is.Rows, m.is.Cols, m.is.Data.Type(), m.is.ColStride, m.rows, width, stored))
		}
	}
}

// input returns the input for the kernel that is launched next; see graphParams.
func (a *attention) input(in device.AttentionInput) attentionInput {
	return attentionInput{
		q: uint64(at(in.Q.Data)), k: uint64(at(in.K.Data)), v: uint64(at(in.V.Data)),
		qStride: uint64(in.Q.RowStride), kStride: uint64(in.K.RowStride), vStride: uint64(in.V.RowStride), dropout: a.device.dropoutOf(in.Dropout),
		heads: uint32(a.Heads), size: uint32(a.HeadSize), queries: uint32(in.Queries), keys: uint32(in.Keys),
		scale: a.scale,
	}
}
