//go:build cuda

package driver

/*
#include <cuda.h>

// Parameter i is at block + offsets[i]. cu's own launch copies 8 bytes of each, which is too much
// for some and too little for others.
static CUresult launch(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                       unsigned shared, unsigned cluster, CUstream s, char *block, const uint16_t *offsets, int n) {
	void *params[DDPB_MAX_ARGS];
	for (int i = 0; i < n; i++) params[i] = block + offsets[i];
	if (cluster <= 1) return cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, s, params, NULL);
	CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
	attribute.value.clusterDim.x = cluster;
	attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
	CUlaunchConfig c = {gx, gy, gz, bx, by, bz, shared, s, &attribute, 1};
	return cuLaunchKernelEx(&c, f, params, NULL);
}
*/
// #cgo CFLAGS: -DDDPB_MAX_ARGS=64
import "C"

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"unsafe"
)

// Dim is a size in up to three dimensions; 0 is 1.
type Dim struct{ X, Y, Z int }

func (d Dim) c() (x, y, z C.uint) {
	return C.uint(max(d.X, 1)), C.uint(max(d.Y, 1)), C.uint(max(d.Z, 1))
}

func (d Dim) String() string {
	return fmt.Sprintf("%dx%dx%d", max(d.X, 1), max(d.Y, 1), max(d.Z, 1))
}

// Launch is how a kernel is started.
type Launch struct {
	Grid, Block Dim // blocks, and threads of a block
	Shared      int // bytes of dynamic shared memory of a block
	Cluster     int // blocks along X that share their memory (compute capability 9.0); 0 and 1: none
}

// Args are a kernel's arguments, in the order of its parameters. They are copied when
// the kernel is launched, so that one Args serves for all launches of a goroutine. A
// parameter's size must be that of its type in the kernel. The zero Args has none.
type Args struct {
	n       int
	bytes   int
	offsets [maxArgs]uint16
	block   [maxArgBytes]byte
}

const (
	maxArgs     = 64
	maxArgBytes = 4096 // CUDA's limit up to 12.1
)

// Reset leaves out what was added.
func (a *Args) Reset() *Args {
	a.n, a.bytes = 0, 0
	return a
}

// Ptr adds an address in the GPU's memory.
func (a *Args) Ptr(p Ptr) *Args { return a.Int64(int64(p)) }

// Int adds an int. It panics if v does not fit.
func (a *Args) Int(v int) *Args {
	if int(int32(v)) != v {
		panic(fmt.Sprintf("driver: argument %d of a kernel is %d, which is no int of C", a.n, v))
	}
	return a.Uint32(uint32(v))
}

// Uint32 adds an unsigned int.
func (a *Args) Uint32(v uint32) *Args {
	*(*uint32)(a.add(4, 4)) = v
	return a
}

// Int64 adds a long long.
func (a *Args) Int64(v int64) *Args {
	*(*int64)(a.add(8, 8)) = v
	return a
}

// Uint64 adds an unsigned long long.
func (a *Args) Uint64(v uint64) *Args { return a.Int64(int64(v)) }

// Float adds a float.
func (a *Args) Float(v float32) *Args {
	*(*float32)(a.add(4, 4)) = v
	return a
}

// Double adds a double.
func (a *Args) Double(v float64) *Args {
	*(*float64)(a.add(8, 8)) = v
	return a
}

// Struct adds a structure by value: a type without pointers, laid out as the kernel's.
func Struct[T any](a *Args, v *T) *Args {
	*(*T)(a.add(int(unsafe.Sizeof(*v)), int(unsafe.Alignof(*v)))) = *v
	return a
}

// Append appends the arguments to b, in as many bytes as Load takes: the same for the
// same arguments.
func (a *Args) Append(b []byte) []byte {
	b = append(b, byte(a.n))
	for _, at := range a.offsets[:a.n] {
		b = binary.LittleEndian.AppendUint16(b, at)
	}
	return append(b, a.block[:a.bytes]...)
}

// Load replaces the arguments by those that Append has appended as b.
func (a *Args) Load(b []byte) *Args {
	a.n = int(b[0])
	for i := range a.n {
		a.offsets[i] = binary.LittleEndian.Uint16(b[1+2*i:])
	}
	a.bytes = copy(a.block[:], b[1+2*a.n:])
	return a
}

// add makes room for a parameter.
func (a *Args) add(size, align int) unsafe.Pointer {
	at := (a.bytes + align - 1) &^ (align - 1)
	if a.n == maxArgs || at+size > maxArgBytes {
		panic(fmt.Sprintf("driver: more than %d arguments or %d bytes of them", maxArgs, maxArgBytes))
	}
	clear(a.block[a.bytes:at]) // so that equal arguments are equal bytes, see Append
	a.offsets[a.n] = uint16(at)
	a.n++
	a.bytes = at + size
	return unsafe.Pointer(&a.block[at])
}

// Launch starts a kernel in the stream and returns at once. What goes wrong while it
// runs is an error of a later call.
func (s Stream) Launch(f *Function, l Launch, a *Args) error {
	gx, gy, gz := l.Grid.c()
	bx, by, bz := l.Block.c()
	r := C.launch(functionHandle(f.function), gx, gy, gz, bx, by, bz, C.uint(l.Shared), C.uint(l.Cluster), streamHandle(s.stream),
		(*C.char)(unsafe.Pointer(&a.block[0])), (*C.uint16_t)(unsafe.Pointer(&a.offsets[0])), C.int(a.n))
	runtime.KeepAlive(a)
	if r == C.CUDA_SUCCESS {
		return nil
	}
	op := "cuLaunchKernel"
	if l.Cluster > 1 {
		op = "cuLaunchKernelEx"
	}
	return failed(op, r, func() string {
		what := fmt.Sprintf("kernel %q, grid %s, block %s", f.name, l.Grid, l.Block)
		if l.Shared > 0 {
			what += fmt.Sprintf(", %d bytes of shared memory", l.Shared)
		}
		if l.Cluster > 1 {
			what += fmt.Sprintf(", clusters of %d", l.Cluster)
		}
		return what + fmt.Sprintf(", %d arguments", a.n)
	})
}
