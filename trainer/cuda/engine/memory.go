//go:build cuda

package engine

import (
	"fmt"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// Alloc allocates GPU memory, which Close frees.
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
	d.submit(call{kind: clears, to: p, bytes: int64(n * t.Size())})
	return Tensor(t, p, n)
}

// Available returns the free memory of the GPU in bytes.
func (d *Device) Available() int64 {
	defer d.enter("available").Leave()
	free, _, err := d.gpu.Free()
	d.check(err)
	return free
}

// LazyBytes returns the number of bytes that the device allocates on first use in addition to
// tensors: cuBLASLt's workspace and the unused part of slabs. Packed operands of matrix
// multiplications are not included.
func (d *Device) LazyBytes() int64 { return workspaceBytes + driver.Slab }

// Write copies from the host. src may be reused when it returns.
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
	d.before = d.last
}

// Read copies to the host and waits.
func (d *Device) Read(dst []float32, src device.Tensor) {
	sameLength("read", len(dst), src.Len())
	d.download(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(dst))), 4*len(dst)), floats(src))
}

// ReadInts copies to the host and waits.
func (d *Device) ReadInts(dst []int32, src device.Tensor) {
	sameLength("read", len(dst), src.Len())
	d.download(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(dst))), 4*len(dst)), ints(src))
}

func (d *Device) download(dst []byte, src driver.Ptr) {
	defer d.enter("read", len(dst)/4).Leave()
	d.flush()
	d.fetch(dst, src)
}

// Pin allocates pinned host memory.
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

// Copy copies between tensors of equal type and length.
func (d *Device) Copy(dst, src device.Tensor) {
	sameLength("copy", dst.Len(), src.Len())
	if dst.Type() != src.Type() {
		panic(fmt.Sprintf("engine: copy %v to %v", src.Type(), dst.Type()))
	}
	if dst.Len() == 0 {
		return
	}
	defer d.enter("copy", dst.Len()).Leave()
	d.submit(call{kind: copies, to: at(dst), a: at(src), bytes: int64(dst.Len() * dst.Type().Size())})
}

// Zero clears a tensor.
func (d *Device) Zero(t device.Tensor) {
	if t.Len() == 0 {
		return
	}
	defer d.enter("zero", t.Len()).Leave()
	d.submit(call{kind: clears, to: at(t), bytes: int64(t.Len() * t.Type().Size())})
}

// These are the scratch buffers of operations. Each has one user at a time: the stream order
// separates operations.
const (
	scratchA         = iota // a packed operand
	scratchB                // the other packed operand
	scratchBias             // a rounded bias
	scratchDelta            // delta of the attention gradients: one value per query and head
	scratchWorkspace        // cuBLASLt's workspace
	scratchSort             // sorted tokens
	scratchSums             // partial results of reductions and of sums over rows
	scratchUses
)

// scratch is a buffer that grows when a larger operation occurs, so during the first step. The pool
// caches the previous memory for other uses.
type scratch struct {
	at    driver.Ptr
	bytes int
}

func (d *Device) scratchFor(use, bytes int) driver.Ptr {
	s := &d.scratch[use]
	if s.bytes < bytes {
		if s.bytes > 0 {
			d.flush()         // held-back calls may use it, and the driver may reuse it
			d.pool.Free(s.at) // its next user is in the same stream
		}
		*s = scratch{}
		p, err := d.pool.Alloc(int64(bytes))
		d.check(err)
		*s = scratch{p, bytes}
	}
	return s.at
}
