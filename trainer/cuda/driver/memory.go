//go:build cuda

package driver

// #include <cuda.h>
import "C"

import (
	"fmt"
	"unsafe"

	"gorgonia.org/cu"
)

// Ptr is an address in a GPU's memory. Adding bytes to it is fine.
type Ptr = cu.DevicePtr

// Alloc returns n bytes (n > 0) of the bound GPU's memory, aligned to 256, with
// anything in them. It waits for the GPU: memory that steps use is best got from a
// [Pool].
func Alloc(n int64) (Ptr, error) {
	p, err := cu.MemAlloc(n)
	return p, wrap("cuMemAlloc", err, func() string { return bytesFree(n) })
}

// bytesFree is what one wants to know when memory runs out.
func bytesFree(n int64) string {
	free, total, err := cu.MemInfo()
	if err != nil {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%d bytes, where %d of %d are free", n, free, total)
}

// Free gives memory of Alloc back, after all work on the GPU.
func Free(p Ptr) error { return wrap("cuMemFree", cu.MemFree(p), nil) }

// AllocAsync returns memory that exists from this place in the stream on. It may be
// captured in a graph.
func (s Stream) AllocAsync(n int64) (Ptr, error) {
	var p C.CUdeviceptr
	err := failed("cuMemAllocAsync", C.cuMemAllocAsync(&p, C.size_t(n), streamHandle(s.stream)), func() string { return bytesFree(n) })
	return Ptr(p), err
}

// FreeAsync gives memory of AllocAsync back, at this place in the stream.
func (s Stream) FreeAsync(p Ptr) error {
	return failed("cuMemFreeAsync", C.cuMemFreeAsync(C.CUdeviceptr(p), streamHandle(s.stream)), nil)
}

// Host is pinned memory of the host, which a GPU reads and writes while the host does
// something else. It is C's memory, not Go's.
type Host struct {
	address unsafe.Pointer
	bytes   int64
}

// AllocHost returns n bytes (n > 0) of pinned memory, for every GPU.
func AllocHost(n int64) (Host, error) {
	h := Host{bytes: n}
	err := failed("cuMemHostAlloc", C.cuMemHostAlloc(&h.address, C.size_t(n), C.CU_MEMHOSTALLOC_PORTABLE),
		func() string { return fmt.Sprintf("%d bytes of pinned host memory", n) })
	return h, err
}

// Free gives it back. No copy may be under way.
func (h Host) Free() error { return wrap("cuMemFreeHost", cu.MemFreeHost(h.address), nil) }

// Len is its size in bytes.
func (h Host) Len() int64 { return h.bytes }

// Part is the n bytes from the given offset on.
func (h Host) Part(offset, n int64) Host {
	if offset < 0 || n < 0 || offset+n > h.bytes {
		panic(fmt.Sprintf("driver: part %d+%d of %d bytes", offset, n, h.bytes))
	}
	return Host{unsafe.Add(h.address, offset), n}
}

// Find is the part of h that some memory is, if it is one.
func (h Host) Find(memory []byte) (part Host, ok bool) {
	at, n := uintptr(unsafe.Pointer(unsafe.SliceData(memory)))-uintptr(h.address), int64(len(memory)) // huge where it lies before
	if n > h.bytes || at > uintptr(h.bytes-n) {
		return Host{}, false
	}
	return h.Part(int64(at), n), true
}

// Bytes is the memory itself. It is gone after Free.
func (h Host) Bytes() []byte { return unsafe.Slice((*byte)(h.address), h.bytes) }

// View is h as elements of a type without pointers. The bytes must be a whole number
// of them.
func View[T any](h Host) []T {
	size := int64(unsafe.Sizeof(*new(T)))
	if h.bytes%size != 0 {
		panic(fmt.Sprintf("driver: %d bytes are not whole elements of %d", h.bytes, size))
	}
	return unsafe.Slice((*T)(h.address), h.bytes/size)
}

// Upload copies to the GPU. The memory is the stream's until it has come by.
func (s Stream) Upload(dst Ptr, src Host) error {
	return wrap("cuMemcpyHtoDAsync", cu.MemcpyHtoDAsync(dst, src.address, src.bytes, s.stream), copying(src.bytes))
}

// Download copies from the GPU; the bytes are there once the stream has come by.
func (s Stream) Download(dst Host, src Ptr) error {
	return wrap("cuMemcpyDtoHAsync", cu.MemcpyDtoHAsync(dst.address, src, dst.bytes, s.stream), copying(dst.bytes))
}

// Copy copies n bytes within the GPU, or from one to another.
func (s Stream) Copy(dst, src Ptr, n int64) error {
	return wrap("cuMemcpyAsync", cu.MemcpyAsync(dst, src, n, s.stream), copying(n))
}

// Clear writes n zero bytes.
func (s Stream) Clear(dst Ptr, n int64) error {
	return wrap("cuMemsetD8Async", cu.MemsetD8Async(dst, 0, n, s.stream), copying(n))
}

// Fill writes n times v.
func (s Stream) Fill(dst Ptr, v uint32, n int64) error {
	return wrap("cuMemsetD32Async", cu.MemsetD32Async(dst, uint(v), n, s.stream), copying(4*n))
}

// Write copies from Go's memory and returns when that may be used again. It is in
// order with the stream that NULL names, and no other.
func Write(dst Ptr, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	return wrap("cuMemcpyHtoD", cu.MemcpyHtoD(dst, unsafe.Pointer(&src[0]), int64(len(src))), copying(int64(len(src))))
}

// Read is likewise from the GPU.
func Read(dst []byte, src Ptr) error {
	if len(dst) == 0 {
		return nil
	}
	return wrap("cuMemcpyDtoH", cu.MemcpyDtoH(unsafe.Pointer(&dst[0]), src, int64(len(dst))), copying(int64(len(dst))))
}

func copying(n int64) func() string { return func() string { return fmt.Sprintf("%d bytes", n) } }
