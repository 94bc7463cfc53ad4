//go:build cuda

package driver

// #include <cuda.h>
import "C"

import (
	"fmt"
	"unsafe"

	"gorgonia.org/cu"
)

// Ptr is a device address. Adding a byte offset is valid.
type Ptr = cu.DevicePtr

// Alloc allocates n bytes (n > 0) of the bound GPU's memory, aligned to 256 bytes and
// uninitialized. It synchronizes with the GPU, so memory that steps use should come from a [Pool].
func Alloc(n int64) (Ptr, error) {
	p, err := cu.MemAlloc(n)
	return p, wrap("cuMemAlloc", err, func() string { return describeAlloc(n) })
}

// describeAlloc describes an allocation for out-of-memory errors.
func describeAlloc(n int64) string {
	free, total, err := cu.MemInfo()
	if err != nil {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%d bytes, where %d of %d are free", n, free, total)
}

// Free releases memory from Alloc, after all work on the GPU.
func Free(p Ptr) error { return wrap("cuMemFree", cu.MemFree(p), nil) }

// Host is pinned host memory, which a GPU accesses asynchronously. It is C memory, not Go memory.
type Host struct {
	address unsafe.Pointer
	bytes   int64
}

// AllocHost allocates n bytes (n > 0) of pinned memory for all GPUs.
func AllocHost(n int64) (Host, error) {
	h := Host{bytes: n}
	err := failed("cuMemHostAlloc", C.cuMemHostAlloc(&h.address, C.size_t(n), C.CU_MEMHOSTALLOC_PORTABLE),
		func() string { return fmt.Sprintf("%d bytes of pinned host memory", n) })
	return h, err
}

// Free releases the memory. No copy may be in progress.
func (h Host) Free() error { return wrap("cuMemFreeHost", cu.MemFreeHost(h.address), nil) }

// Len returns the size in bytes.
func (h Host) Len() int64 { return h.bytes }

// Part returns n bytes starting at offset.
func (h Host) Part(offset, n int64) Host {
	if offset < 0 || n < 0 || offset+n > h.bytes {
		panic(fmt.Sprintf("driver: part %d+%d of %d bytes", offset, n, h.bytes))
	}
	return Host{unsafe.Add(h.address, offset), n}
}

// Find returns memory as a part of h, if it is one.
func (h Host) Find(memory []byte) (part Host, ok bool) {
	at, n := uintptr(unsafe.Pointer(unsafe.SliceData(memory)))-uintptr(h.address), int64(len(memory)) // wraps around to a huge value if memory is before h
	if n > h.bytes || at > uintptr(h.bytes-n) {
		return Host{}, false
	}
	return h.Part(int64(at), n), true
}

// Bytes returns the memory. It is invalid after Free.
func (h Host) Bytes() []byte { return unsafe.Slice((*byte)(h.address), h.bytes) }

// View returns h as elements of a type without pointers. The size of h must be a multiple of the
// element size.
func View[T any](h Host) []T {
	size := int64(unsafe.Sizeof(*new(T)))
	if h.bytes%size != 0 {
		panic(fmt.Sprintf("driver: %d bytes are not whole elements of %d", h.bytes, size))
	}
	return unsafe.Slice((*T)(h.address), h.bytes/size)
}

// Upload copies to the GPU. src must not change before the stream has executed the copy.
func (s Stream) Upload(dst Ptr, src Host) error {
	return wrap("cuMemcpyHtoDAsync", cu.MemcpyHtoDAsync(dst, src.address, src.bytes, s.stream), copying(src.bytes))
}

// Download copies from the GPU. dst is valid after the stream has executed the copy.
func (s Stream) Download(dst Host, src Ptr) error {
	return wrap("cuMemcpyDtoHAsync", cu.MemcpyDtoHAsync(dst.address, src, dst.bytes, s.stream), copying(dst.bytes))
}

// Copy copies n bytes within a GPU or between GPUs.
func (s Stream) Copy(dst, src Ptr, n int64) error {
	return wrap("cuMemcpyAsync", cu.MemcpyAsync(dst, src, n, s.stream), copying(n))
}

// Clear sets n bytes to zero.
func (s Stream) Clear(dst Ptr, n int64) error {
	return wrap("cuMemsetD8Async", cu.MemsetD8Async(dst, 0, n, s.stream), copying(n))
}

// Fill stores v n times.
func (s Stream) Fill(dst Ptr, v uint32, n int64) error {
	return wrap("cuMemsetD32Async", cu.MemsetD32Async(dst, uint(v), n, s.stream), copying(4*n))
}

// Read copies from the GPU to Go memory. It is ordered only with the NULL stream.
func Read(dst []byte, src Ptr) error {
	if len(dst) == 0 {
		return nil
	}
	return wrap("cuMemcpyDtoH", cu.MemcpyDtoH(unsafe.Pointer(&dst[0]), src, int64(len(dst))), copying(int64(len(dst))))
}

func copying(n int64) func() string { return func() string { return fmt.Sprintf("%d bytes", n) } }
