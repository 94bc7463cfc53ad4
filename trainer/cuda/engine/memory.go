//go:build cuda

package engine

import (
	"fmt"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// Alloc returns memory of the GPU until Close.
func (d *Device) Alloc(t device.Type, n int) device.Tensor {
	if n == 0 {
		return device.At(t, nil, 0)
	}
	if n < 0 {
		panic(fmt.Sprintf("engine: memory for %d elements", n))
	}
	defer d.enter("alloc", n).Leave()
	p, err := d.pool.Alloc(int64(n * t.Size()))
	d.check(err)
	d.do(call{kind: clears, to: p, bytes: int64(n * t.Size())})
	return tensor(t, p, n)
}

// Available is the memory of the GPU that is free, in bytes.
func (d *Device) Available() int64 {
	defer d.enter("available").Leave()
	free, _, err := d.gpu.Free()
	d.check(err)
	return free
}

// Besides is what the device takes beside tensors when it is first used: cuBLASLt's
// workspace, and what is left of slabs. Operands that are packed for products come to it.
func (d *Device) Besides() int64 { return workspaceBytes + driver.Slab }

// Write copies from the host. src may be used again when it returns.
func (d *Device) Write(dst device.Tensor, src []float32) {
	sameLength("write", dst.Len(), len(src))
	d.upload(floats(dst), unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(src))), 4*len(src)))
}

// WriteInts copies from the host.
func (d *Device) WriteInts(dst device.Tensor, src []int32) {
	sameLength("write", dst.Len(), len(src))
	d.upload(ints(dst), unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(src))), 4*len(src)))
}

func (d *Device) upload(dst driver.Ptr, src []byte) {
	defer d.enter("write", len(src)/4).Leave()
	d.flush()
	d.stage(dst, src)
}

// Read copies to the host, and waits.
func (d *Device) Read(dst []float32, src device.Tensor) {
	sameLength("read", len(dst), src.Len())
	d.download(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(dst))), 4*len(dst)), floats(src))
}

// ReadInts copies to the host, and waits.
func (d *Device) ReadInts(dst []int32, src device.Tensor) {
	sameLength("read", len(dst), src.Len())
	d.download(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(dst))), 4*len(dst)), ints(src))
}

func (d *Device) download(dst []byte, src driver.Ptr) {
	defer d.enter("read", len(dst)/4).Leave()
	d.flush()
	d.fetch(dst, src)
}

// Pin gets pinned memory of the host.
func (d *Device) Pin(n int) ([]float32, error) {
	if n == 0 {
		return nil, nil
	}
	defer d.enter("pin", n).Leave()
	h, err := driver.AllocHost(4 * int64(n))
	if err != nil {
		return nil, err
	}
	d.staging.pinned = append(d.staging.pinned, h)
	return driver.View[float32](h), nil
}

// Copy copies tensors of one type and length.
func (d *Device) Copy(dst, src device.Tensor) {
	sameLength("copy", dst.Len(), src.Len())
	if dst.Type() != src.Type() {
		panic(fmt.Sprintf("engine: copy %v to %v", src.Type(), dst.Type()))
	}
	if dst.Len() == 0 {
		return
	}
	defer d.enter("copy", dst.Len()).Leave()
	d.do(call{kind: copies, to: at(dst), a: at(src), bytes: int64(dst.Len() * dst.Type().Size())})
}

// Zero clears a tensor.
func (d *Device) Zero(t device.Tensor) {
	if t.Len() == 0 {
		return
	}
	defer d.enter("zero", t.Len()).Leave()
	d.do(call{kind: clears, to: at(t), bytes: int64(t.Len() * t.Type().Size())})
}

// Uses of memory that operations need beside their arguments. One use is one at a
// time: the stream's order keeps operations apart.
const (
	scratchA         = iota // a packed operand
	scratchB                // likewise
	scratchBias             // a rounded bias
	scratchAlong            // of attention's gradients: a number for each query of each head
	scratchWorkspace        // cuBLASLt's
	scratchTrial            // the results of products that are measured
	scratchSort             // tokens in order
	scratchSums             // partial results of reductions, and of sums over rows
	scratchUses
)

// scratch is memory that grows when a larger operation than before comes: with the
// first step, that is. What was is kept by the pool for others.
type scratch struct {
	at    driver.Ptr
	bytes int
}

func (d *Device) room(use, bytes int) driver.Ptr {
	s := &d.scratch[use]
	if s.bytes < bytes {
		if s.bytes > 0 {
			d.flush()         // what is held back may use it, and the driver may get it
			d.pool.Free(s.at) // its next user is in the same stream
		}
		*s = scratch{}
		p, err := d.pool.Alloc(int64(bytes))
		d.check(err)
		*s = scratch{p, bytes}
	}
	return s.at
}
