//go:build cuda

package driver

/*
#include <cuda.h>

// Parameter i is at block + offsets[i]. Package cu's launch function copies 8 bytes of each
// parameter, which is too many for some and too few for others.
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

// Dim is a size in up to three dimensions; 0 means 1.
type Dim struct{ X, Y, Z int }

func (d Dim) c() (x, y, z C.uint) {
	return C.uint(max(d.X, 1)), C.uint(max(d.Y, 1)), C.uint(max(d.Z, 1))
}

func (d Dim) String() string {
	return fmt.Sprintf("%dx%dx%d", max(d.X, 1), max(d.Y, 1), max(d.Z, 1))
}

// Launch is a launch configuration of a kernel.
type Launch struct {
	Grid, Block Dim // number of blocks; threads per block
	Shared      int // dynamic shared memory per block in bytes
	Cluster     int // thread block cluster size along X (compute capability 9.0); 0 and 1 mean no clusters
}

// Args holds a kernel's arguments, in the order of its parameters. A launch copies them, so that
// one Args can be reused for all launches of a goroutine. Each argument must have the size of the
// kernel's parameter. The zero Args is empty.
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

// Reset removes all arguments.
func (a *Args) Reset() *Args {
	a.n, a.bytes = 0, 0
	return a
}

// Ptr appends a device address.
func (a *Args) Ptr(p Ptr) *Args { return a.Int64(int64(p)) }

// Int appends an int. It panics if v does not fit.
func (a *Args) Int(v int) *Args {
	if int(int32(v)) != v {
		panic(fmt.Sprintf("driver: argument %d of a kernel is %d, which overflows int", a.n, v))
	}
	return a.Uint32(uint32(v))
}

// Uint32 appends an unsigned int.
func (a *Args) Uint32(v uint32) *Args {
	*(*uint32)(a.add(4, 4)) = v
	return a
}

// Int64 appends a long long.
func (a *Args) Int64(v int64) *Args {
	*(*int64)(a.add(8, 8)) = v
	return a
}

// Float appends a float.
func (a *Args) Float(v float32) *Args {
	*(*float32)(a.add(4, 4)) = v
	return a
}

// Double appends a double.
func (a *Args) Double(v float64) *Args {
	*(*float64)(a.add(8, 8)) = v
	return a
}

// Struct appends a struct by value. T must have no pointers and the layout of the kernel's struct.
func Struct[T any](a *Args, v *T) *Args {
	*(*T)(a.add(int(unsafe.Sizeof(*v)), int(unsafe.Alignof(*v)))) = *v
	return a
}

// Append appends the arguments to b in the format of Load. Equal arguments have equal encodings.
func (a *Args) Append(b []byte) []byte {
	b = append(b, byte(a.n))
	for _, at := range a.offsets[:a.n] {
		b = binary.LittleEndian.AppendUint16(b, at)
	}
	return append(b, a.block[:a.bytes]...)
}

// Load replaces the arguments by the encoded ones in b.
func (a *Args) Load(b []byte) *Args {
	a.n = int(b[0])
	for i := range a.n {
		a.offsets[i] = binary.LittleEndian.Uint16(b[1+2*i:])
	}
	a.bytes = copy(a.block[:], b[1+2*a.n:])
	return a
}

// add reserves space for a parameter.
func (a *Args) add(size, align int) unsafe.Pointer {
	at := (a.bytes + align - 1) &^ (align - 1)
	if a.n == maxArgs || at+size > maxArgBytes {
		panic(fmt.Sprintf("driver: more than %d arguments or %d bytes of them", maxArgs, maxArgBytes))
	}
	clear(a.block[a.bytes:at]) // so that equal arguments have equal bytes, see Append
	a.offsets[a.n] = uint16(at)
	a.n++
	a.bytes = at + size
	return unsafe.Pointer(&a.block[at])
}

// Launch enqueues a kernel in the stream and returns immediately. An error during its execution is
// returned by a later call.
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
